"""When work on a study ends before the study does, and whether the run in progress ends with it."""

from __future__ import annotations

import time
from typing import Literal

from tuner.stop import Stop, wait_for

Why = Literal["asked", "paused", "cancelled", "ended", "deleted", "lost", "elsewhere", "quarantined"]
"""Why somebody leaves: the process was asked to end; the study was paused, cancelled, ended or deleted by somebody; the
process was declared lost; a study of higher priority waits; its device is quarantined."""
AT_ONCE: frozenset[Why] = frozenset({"paused", "cancelled", "ended", "deleted", "lost"})
"""Reasons that end the run in progress as well."""


class Leaving:
    """Whether to leave one study. Set by signal handlers (the process's :class:`Stop`) and by the heartbeat.

    Args:
        process: What the process was asked.
        grace_seconds: How long a run may go on after the process was asked the first time; the second time ends it.
    """

    def __init__(self, process: Stop, *, grace_seconds: float = 0.0) -> None:
        self.process = process
        self._grace_seconds = grace_seconds
        self._why: Why | None = None

    def leave(self, why: Why) -> None:
        """Asks for it. The first reason stays, unless a later one also ends the run."""
        if self._why is None or (self._why not in AT_ONCE and why in AT_ONCE):
            self._why = why

    @property
    def why(self) -> Why | None:
        """The reason; None while there is none."""
        return self._why or ("asked" if self.process.is_set() else None)

    def is_set(self) -> bool:
        """Whether nothing new may be started."""
        return self._why is not None or self.process.is_set()

    def ends_run(self) -> bool:
        """Whether the run in progress must end now."""
        if self._why in AT_ONCE or self.process.times > 1:
            return True
        asked_at = self.process.asked_at
        return asked_at is not None and time.monotonic() - asked_at >= self._grace_seconds

    def wait(self, seconds: float) -> bool:
        """Sleeps at most so long, less when there is a reason to leave; returns :meth:`is_set`."""
        return wait_for(self.is_set, seconds)
