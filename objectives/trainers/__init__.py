"""The study's own workload in somebody else's trainer, as exported: what ``tuner confirm --with`` runs in a child."""
