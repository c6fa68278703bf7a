"""A request to stop that a signal handler may make at any moment."""

from __future__ import annotations

import time
from collections.abc import Callable

SLICE_SECONDS = 0.05


class Stop:
    """Asks whoever works to end soon. A ``threading.Event`` would not do: its lock hangs a handler inside ``wait``.

    Attributes:
        status: Exit status that the request asks for; 0 while nobody asked.
        times: How often somebody asked; the second time means at once.
        asked_at: ``time.monotonic()`` of the first request; None while nobody asked.
    """

    def __init__(self) -> None:
        self.status = 0
        self.times = 0
        self.asked_at: float | None = None

    def set(self, status: int = 130) -> None:
        """Asks for the end. The first request's status stays."""
        self.status = self.status or status
        self.asked_at = self.asked_at or time.monotonic()
        self.times += 1

    def is_set(self) -> bool:
        """Whether somebody asked."""
        return self.times > 0

    def wait(self, seconds: float) -> bool:
        """Sleeps at most so long, less when somebody asks; returns :meth:`is_set`."""
        return wait_for(self.is_set, seconds)


def wait_for(is_set: Callable[[], bool], seconds: float) -> bool:
    """Sleeps at most so long, less when ``is_set()`` says True; returns its word."""
    ends_at = time.monotonic() + seconds
    while not is_set() and (left := ends_at - time.monotonic()) > 0:
        time.sleep(min(SLICE_SECONDS, left))
    return is_set()
