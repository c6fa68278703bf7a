"""Energy of a measured window, from the board's own counter."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from objectives.measure.nvidia import cuda_uuid, energy_millijoules

if TYPE_CHECKING:
    import torch

SHORTEST_SECONDS = 5.0
"""The counter moves about every 100 ms: below five seconds its grain is more than 2 % of the reading."""


class EnergyMeter:
    """Joules of the whole board since the meter was made; None where there is no counter (CPU, MIG, no NVML).

    The counter is the board's: other users of the board are in it.
    """

    def __init__(self, device: torch.device | str = "cpu", *, library: Any = None) -> None:
        self._library = library
        self._uuid = cuda_uuid(device) if str(device).startswith("cuda") else ""
        self._begun, self._ended = time.perf_counter(), 0.0
        self._start = energy_millijoules(self._uuid, library)
        self._end: int | None = None

    def stop(self) -> None:
        """Ends the window: what follows is not counted."""
        self._end, self._ended = energy_millijoules(self._uuid, self._library), time.perf_counter()

    def joules(self, window_seconds: float) -> float | None:
        """Energy of a window of so many seconds at the mean power since the meter was made (until :meth:`stop`).

        None for windows below 5 seconds.
        """
        if not self._ended:
            self.stop()
        return joules(self._start, self._end, elapsed=self._ended - self._begun, window_seconds=window_seconds)


def joules(start: int | None, end: int | None, *, elapsed: float, window_seconds: float) -> float | None:
    """Energy of a window from two readings in millijoules, ``elapsed`` seconds apart; None when it cannot be told."""
    if start is None or end is None or end < start or window_seconds < SHORTEST_SECONDS or elapsed <= 0.0:
        return None
    return (end - start) / 1000 * min(window_seconds / elapsed, 1.0)
