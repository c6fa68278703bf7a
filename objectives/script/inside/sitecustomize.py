"""Loaded by the interpreter at its start. Begins the watch, then does what the next ``sitecustomize`` would have done."""

import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def chain() -> None:
    """Runs the ``sitecustomize`` this one hides, under its own name; there may be none."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    import _tightfit_watch

    _tightfit_watch.begin()
finally:
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
    chain()
