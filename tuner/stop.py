"""A request to stop that a signal handler may make at any moment."""

from __future__ import annotations

import time

SLICE_SECONDS = 0.05


class Stop:
    """Asks whoever works to end soon. A ``threading.Event`` would not do: its lock hangs a handler inside ``wait``.

    Attributes:
        status: Exit status that the request asks for; 0 while nobody asked.
    """

    def __init__(self) -> None:
        self.status = 0
        self._asked = False

    def set(self, status: int = 130) -> None:
        """Asks for the end. The first request's status stays."""
        self.status = self.status or status
        self._asked = True

    def is_set(self) -> bool:
        """Whether somebody asked."""
        return self._asked

    def wait(self, seconds: float) -> bool:
        """Sleeps at most so long, less when somebody asks; returns :meth:`is_set`."""
        ends_at = time.monotonic() + seconds
        while not self._asked and (left := ends_at - time.monotonic()) > 0:
            time.sleep(min(SLICE_SECONDS, left))
        return self._asked
