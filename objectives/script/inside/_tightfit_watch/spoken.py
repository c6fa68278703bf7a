"""Steps by the script's own word, where nothing can be seen (no torch optimizer in the process)."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from .clocks import now

READ_BACK_AT = 2
FLUSH_SECONDS = 0.5


class Spoken:
    """The steps a process has reported."""

    def __init__(self, line: Any) -> None:
        self.pid = os.getpid()
        self._line = line
        self._index = 0
        self._ended: float | None = None
        self._own = 0.0
        self._rows: list[Any] = []
        self._flushed = 0.0

    def step(self, said: dict[str, Any]) -> None:
        """One step is over."""
        begun = now()
        self._index += 1
        micro, seconds = int(said["accumulation_steps"]), None if self._ended is None else begun - self._ended
        self._ended = begun
        row = [self._index, begun, seconds, micro, int(said["samples"]), said.get("tokens"), 0.0]
        self._rows.append([*row, self._own, True, False, None])
        if self._index == READ_BACK_AT:
            self._line.send(applied=_applied(said, micro), window_steps=self._index)
        if self._index <= READ_BACK_AT or begun - self._flushed >= FLUSH_SECONDS:
            self._flush(begun)
        if self._line.stop_at is not None and self._index >= self._line.stop_at:
            self._flush(begun)
            leave(self._line, {})
        self._own = now() - begun

    def _flush(self, begun: float) -> None:
        self._flushed = begun
        if self._rows:
            self._line.send(steps=self._rows)
        self._rows = []
        self._line.listen()


def _applied(said: dict[str, Any], micro: int) -> dict[str, Any]:
    known = ("precision", "loader_workers")
    found = {name: said[name] for name in known if said.get(name) is not None}
    return {"accumulation_steps": micro, "micro_batch_size": int(said["samples"]) / micro, **found}


_SPOKEN: list[Spoken] = []


def step(line: Any, said: dict[str, Any]) -> None:
    """Takes one step; what was seen through torch's hooks no longer counts."""
    if not _SPOKEN or _SPOKEN[0].pid != os.getpid():
        steps = sys.modules.get(f"{__package__}.steps")
        if steps is not None:
            steps.retire()
        _SPOKEN[:] = [Spoken(line)]
    _SPOKEN[0].step(said)


def leave(line: Any, last: dict[str, Any], grace_seconds: float = 5.0) -> None:
    """Says good-bye and ends the script: its ``finally`` blocks and exit handlers run, for so many seconds at most."""
    line.send(bye=last)
    watchdog = threading.Timer(grace_seconds, os._exit, args=(0,))
    watchdog.daemon = True
    watchdog.start()
    raise SystemExit(0)
