"""Search strategies replayed on tables of real measurements: what each costs, and what it finds."""
