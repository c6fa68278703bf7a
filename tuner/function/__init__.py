"""``tuner.tune``: a person's own function tuned on their own machine."""
