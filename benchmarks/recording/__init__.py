"""Complete tables of real measurements, recorded for the replay benchmark. See ``benchmarks/tables/README.md``."""
