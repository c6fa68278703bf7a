"""The sleeping model whose children keep a journal of their own: what a chaos run compares the store with.

A line a fact, appended whole: ``built`` when a child builds its model, ``finished`` once it has told its worker so.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from tests_sleepy import Sleepy, SleepyWorkload

from objectives.trial import process_table
from objectives.trial.channel import Channel


class Journaled(Sleepy):
    """The objective.

    Args:
        seconds: Of one micro-batch.
        journal: The file; on a local disk.
    """

    def __init__(self, seconds: float = 0.02, journal: str = "") -> None:
        super().__init__(seconds)
        self._journal = Path(journal)

    def build(self, device: torch.device, seed: int) -> SleepyWorkload:
        _note(self._journal, "built")
        _listen_in(self._journal)
        return super().build(device, seed)


def _listen_in(journal: Path) -> None:
    """Notes a run's end behind the event that tells it. In the child alone: its template never builds."""
    if getattr(Channel, "journaled", False):
        return
    send, seen = Channel.send, {}

    def noted(self: Channel, event: Any, **fields: Any) -> None:
        send(self, event, **fields)
        if event == "measurement":
            seen.update(throughput=fields.get("throughput"))
        elif event == "finished":
            _note(journal, "finished", **seen)

    Channel.send = noted  # type: ignore[method-assign]
    Channel.journaled = True  # type: ignore[attr-defined]


def _note(journal: Path, what: str, **fields: Any) -> None:
    run = os.environ.get(process_table.RUN_VARIABLE)
    line = json.dumps({"what": what, "run": run, "pid": os.getpid(), "at": time.time(), **fields})
    descriptor = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)
