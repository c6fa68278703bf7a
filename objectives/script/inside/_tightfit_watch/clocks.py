"""The time between two optimizer steps, as the device sees it."""

from __future__ import annotations

import time
from typing import Any


class HostClock:
    """A CPU does what it is told before it returns: the host's clock is the device's."""

    def stamp(self, now: float) -> Any:
        """A mark at this moment."""
        return now

    def is_past(self, stamp: Any) -> bool:
        """Whether the device has come to that mark."""
        return True

    def seconds(self, earlier: Any, later: Any) -> float:
        """Seconds between two marks that are past."""
        return float(later - earlier)

    def wait(self) -> None:
        """Waits until every mark is past."""


class CudaClock(HostClock):
    """Events in the current stream: nothing in a step ever waits for the device."""

    def __init__(self, torch: Any) -> None:
        self._cuda = torch.cuda

    def stamp(self, now: float) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def is_past(self, stamp: Any) -> bool:
        return bool(stamp.query())

    def seconds(self, earlier: Any, later: Any) -> float:
        return float(earlier.elapsed_time(later)) / 1000

    def wait(self) -> None:
        self._cuda.synchronize()


now = time.perf_counter
"""On Linux the monotonic clock of the machine: the same in every process of it."""


def clock_of(torch: Any, device: str) -> HostClock:
    """The clock of a kind of device."""
    return CudaClock(torch) if device == "cuda" else HostClock()
