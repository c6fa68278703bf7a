"""Steps by the script's own word, where nothing can be seen (no torch optimizer in the process)."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

_STATE: dict[str, Any] = {}


def step(line: Any, said: dict[str, Any]) -> None:
    """Takes one step; what was seen through torch's hooks no longer counts."""
    begun = time.perf_counter()
    if _STATE.get("pid") != os.getpid():
        _STATE.clear()
        _STATE.update(pid=os.getpid(), index=0, ended=None, own=0.0)
        steps = sys.modules.get(__package__ + ".steps")
        if steps is not None:
            steps.retire()
    last, _STATE["ended"] = _STATE["ended"], begun
    _STATE["index"] += 1
    micro = int(said.get("accumulation_steps") or 1)
    if last is not None:
        row = [_STATE["index"], begun, begun - last, micro, int(said["samples"]), said.get("tokens"), 0.0]
        line.send(steps=[[*row, _STATE["own"], True, False, None]])
        _STATE["own"] = 0.0
    if _STATE["index"] == 2:
        line.send(applied=_applied(said, micro))
    line.listen()
    _STATE["own"] += time.perf_counter() - begun
    if line.stop_at is not None and _STATE["index"] >= line.stop_at:
        leave(line, {})


def _applied(said: dict[str, Any], micro: int) -> dict[str, Any]:
    known = ("precision", "loader_workers", "micro_batch_size")
    found = {name: said[name] for name in known if said.get(name) is not None}
    return {"accumulation_steps": micro, "micro_batch_size": int(said["samples"]) // micro, **found}


def leave(line: Any, last: dict[str, Any], grace_seconds: float = 5.0) -> None:
    """Says good-bye and ends the script: its ``finally`` blocks and exit handlers run, for so many seconds at most."""
    line.send(bye=last)
    watchdog = threading.Timer(grace_seconds, os._exit, args=(0,))
    watchdog.daemon = True
    watchdog.start()
    raise SystemExit(0)
