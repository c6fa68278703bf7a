"""The parts of the chaos run: the stage (a server, workers that are started again), what is done to it, who judges."""
