"""One run in its own process: the launcher, the child, its training loop, and what its end means."""
