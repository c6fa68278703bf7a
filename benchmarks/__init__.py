"""Benchmarks that print ratios and spreads measured in one run. Not installed, never timed tests."""
