"""Which module is running: hooks that keep a stack of names, and name each module's forward in a profile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.profiler import record_function

PREFIX = "module:"
OUTSIDE = ""


class ModuleRanges:
    """The stack of modules whose forward runs now.

    Args:
        model: Watched; the root goes by its class name.
        in_profile: Whether each forward is a named range of torch.profiler as well.
    """

    def __init__(self, model: nn.Module, *, in_profile: bool) -> None:
        self._model, self._in_profile = model, in_profile
        self._names: list[str] = []
        self._ranges: list[Any] = []

    @property
    def current(self) -> str:
        """Name of the innermost module; empty outside any."""
        return self._names[-1] if self._names else OUTSIDE

    @contextmanager
    def watching(self) -> Iterator[ModuleRanges]:
        """The hooks are there meanwhile."""
        handles = []
        for name, module in self._model.named_modules():
            told = name or type(module).__name__
            handles.append(module.register_forward_pre_hook(self._entering(told)))
            handles.append(module.register_forward_hook(self._left, always_call=True))
        try:
            yield self
        finally:
            for handle in handles:
                handle.remove()

    def _entering(self, name: str) -> Any:
        def entering(_module: nn.Module, _arguments: Any) -> None:
            self._names.append(name)
            if self._in_profile:
                self._ranges.append(record_function(PREFIX + name))
                self._ranges[-1].__enter__()

        return entering

    def _left(self, _module: nn.Module, _arguments: Any, _made: Any) -> None:
        if self._names:
            self._names.pop()
        if self._ranges:
            self._ranges.pop().__exit__(None, None, None)
