"""How the search goes: the command line, the Python door (``tuner.run(spec)``), the search and the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.api import Result as Result
    from tuner.api import run as run

__all__ = ["Result", "run"]


def __getattr__(name: str) -> Any:
    """Loads the door when somebody comes through it: the command line's help must not wait for it."""
    if name in __all__:
        from tuner import api

        return getattr(api, name)
    raise AttributeError(f"module 'tuner' has no attribute {name!r}")
