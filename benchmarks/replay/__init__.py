"""Search strategies replayed on tables of real measurements: what each would have cost, and what it would have found."""
