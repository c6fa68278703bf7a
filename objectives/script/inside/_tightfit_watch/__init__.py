"""Sees a training script from inside its process: optimizer steps, batches, precision, memory. Standard library only.

Begun by ``sitecustomize`` before the script's first line. Nothing is reported by a process that trains nothing: the
launchers' own interpreters and every helper a script starts load this too.
"""

from __future__ import annotations

import json
import os
from typing import Any

from . import arrival, failures, line

VARIABLE = "TIGHTFIT_WATCH"
"""What to do, as JSON: ``line`` (where to report), ``device``, ``limit_bytes`` (null: none), ``outside_bytes``."""

__all__ = ["VARIABLE", "begin", "report_step"]


def begin() -> None:
    """Starts watching this process; does nothing where nobody asked for it, or a second time."""
    text = os.environ.get(VARIABLE)
    if not text or line.LINE.told:
        return
    wish: dict[str, Any] = json.loads(text)
    line.LINE.tell(wish["line"])
    failures.install(line.LINE)
    arrival.when_imported("torch", lambda torch: _watch(torch, wish))
    os.register_at_fork(after_in_child=line.LINE.forget)


def _watch(torch: Any, wish: dict[str, Any]) -> None:
    try:
        from . import hooks

        hooks.install(torch, wish, line.LINE)
    except Exception as error:  # noqa: BLE001 - a torch that cannot be watched must still train
        os.write(2, f"tightfit: this torch cannot be watched: {type(error).__name__}: {error}\n".encode())


def report_step(**said: Any) -> None:
    """One optimizer step by the script's own word; see ``tuner.report_step``."""
    begin()
    if line.LINE.told:
        from . import spoken

        spoken.step(line.LINE, said)
