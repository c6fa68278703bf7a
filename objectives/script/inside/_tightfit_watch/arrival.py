"""Calls a function right after a module has been imported for the first time, without importing it."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from typing import Any


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: wraps the loader that the other finders find.

    ``importlib.util.find_spec("torch")`` asks without executing the module (transformers does), so the finder stays
    until the module has really been executed.
    """

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self._name, self._then, self._asking = name, then, False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != self._name or self._asking:
            return None
        self._asking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._arrived)
        return spec

    def _arrived(self, module: Any) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._then(module)


class _Loader(importlib.abc.Loader):
    """Another loader, with a word at the end. Every other question goes to it."""

    def __init__(self, loader: Any, then: Callable[[Any], None]) -> None:
        self._loader, self._then_call = loader, then

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then_call(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def when_imported(name: str, then: Callable[[Any], None]) -> None:
    """Calls ``then(module)`` after the module's first import; at once when it is there already."""
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, then))
