"""Wall time spent on a study by all who work on it: what its time limit is counted in."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class StudyClock:
    """This process's share of a study's clock. Thread-safe.

    Several workers spend the same wall time together, so each adds its own time divided by their number; between two
    such additions the clock simply goes on. Time spent waiting for a device that others use does not count.

    Args:
        seconds: Stored with the study so far.
        now: A rising clock in seconds.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._stored, self._since, self._forgiven = seconds, now(), 0.0

    def elapsed_seconds(self) -> float:
        """Wall time spent on the study, earlier sessions included."""
        with self._lock:
            return self._stored + self._own()

    def forgive(self, seconds: float) -> None:
        """Takes time out that was spent waiting."""
        with self._lock:
            self._forgiven += seconds

    def take(self, workers: int = 1) -> float:
        """This process's seconds since the last call, as its share among so many workers; to be added to the study."""
        with self._lock:
            own = self._own()
            self._stored, self._since, self._forgiven = self._stored + own, self._now(), 0.0
            return own / max(workers, 1)

    def set(self, seconds: float) -> None:
        """Takes over what the store says after an addition, everybody's share included."""
        with self._lock:
            self._stored = seconds

    def _own(self) -> float:
        return max(0.0, self._now() - self._since - self._forgiven)
