"""How the search goes: the command line, the Python door, the search itself and the worker that runs trials."""
