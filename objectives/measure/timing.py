"""Seconds between boundaries of the training loop, truthful on a device that works behind the host's back.

    start()   mark()   mark()   mark()          resolve()
      |---------|--------|--------|  host runs ahead  |  one wait for the device, then the three durations

On a GPU a call returns before its work is done (case H01), and waiting after each step takes away the host's run-ahead.
So each mark puts an event into the device's own queue, and a block waits once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch


class Clock(Protocol):
    """Makes time stamps in the order of the device's work."""

    def stamp(self) -> Any:
        """A mark in the device's queue (on a CPU: the time now)."""

    def wait(self) -> None:
        """Waits until the device has done everything asked of it."""

    def seconds(self, earlier: Any, later: Any) -> float:
        """Seconds between two stamps; only after :meth:`wait`."""


class HostClock:
    """A CPU does what it is told before it returns: the host's clock is the device's."""

    def stamp(self) -> float:
        """Seconds of the performance counter."""
        return time.perf_counter()

    def wait(self) -> None:
        """Nothing to wait for."""

    def seconds(self, earlier: float, later: float) -> float:
        """Their difference."""
        return later - earlier


@dataclass(frozen=True)
class CudaClock:
    """Events in the current stream, resolution about half a microsecond."""

    device: torch.device

    def stamp(self) -> torch.cuda.Event:
        """An event recorded in the current stream."""
        import torch

        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event

    def wait(self) -> None:
        """Waits for the whole device, all streams."""
        import torch

        torch.cuda.synchronize(self.device)

    def seconds(self, earlier: torch.cuda.Event, later: torch.cuda.Event) -> float:
        """Elapsed time on the device."""
        return float(earlier.elapsed_time(later)) / 1000


class Timer:
    """Marks boundaries and tells the seconds between them, block by block."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stamps: list[Any] = []

    def start(self) -> None:
        """Begins a block: what happened since the last one belongs to no interval."""
        self._stamps = [self._clock.stamp()]

    def mark(self) -> None:
        """A boundary. Without :meth:`start` before it, the block begins here."""
        self._stamps.append(self._clock.stamp())

    def resolve(self) -> list[float]:
        """Waits for the device once, ends the block and returns the seconds between its boundaries, in order."""
        self._clock.wait()
        stamps, self._stamps = self._stamps, []
        return [self._clock.seconds(a, b) for a, b in pairwise(stamps)]

    def synchronize(self) -> None:
        """Waits until the device has done everything asked of it."""
        self._clock.wait()


def open_timer(device: torch.device | str) -> Timer:
    """The timer of a device."""
    if str(device).startswith("cuda"):
        import torch

        return Timer(CudaClock(torch.device(device)))
    return Timer(HostClock())
