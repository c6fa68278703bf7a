"""Loaded by the interpreter at its start. Begins the watch, then runs the ``sitecustomize`` that it hides."""

import importlib
import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is not loaded by then


def chain() -> None:
    """Runs the ``sitecustomize`` this one hides, under its own name; there may be none."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    importlib.import_module("_tightfit_watch").begin()
finally:
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]  # noqa: PTH100
    chain()
