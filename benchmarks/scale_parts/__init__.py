"""The parts of the scale benchmark: studies of any size made up, and what is timed on them."""
