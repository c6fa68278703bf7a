"""What ``python -m benchmarks.ui`` is made of: a large store, a browser that watches the clock, a crowd, a peer."""
