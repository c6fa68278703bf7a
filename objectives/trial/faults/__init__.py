"""What is known about how runs fail, by kind of fault. Reached through :mod:`objectives.trial.outcome` only."""
