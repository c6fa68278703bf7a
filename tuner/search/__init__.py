"""How the search goes: the space, what to run next, when to stop, and intervals that are true. Pure."""
