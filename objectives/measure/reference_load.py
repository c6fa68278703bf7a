"""A small fixed piece of work, timed between runs: was the machine as quiet now as before?

A benchmark that compares two numbers taken minutes apart means something only while the same work takes the same time.
The reference is a matrix product of fixed size: bound by compute, and of the kind training is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING

from objectives.measure.series import variance
from objectives.measure.timing import open_timer

if TYPE_CHECKING:
    import torch

QUIET_VARIATION = 0.02
"""Reference times that vary (standard deviation over mean) by less than this: a quiet machine."""
SIZE_CPU, SIZE_CUDA = 768, 4096


class ReferenceLoad:
    """The reference on one device. Made once, called between runs.

    On a CPU with ``threads`` threads; the process's own setting is put back after each call.
    """

    def __init__(self, device: torch.device | str = "cpu", *, threads: int = 1) -> None:
        import torch

        self._threads = threads
        self._timer = open_timer(device)
        size = SIZE_CUDA if str(device).startswith("cuda") else SIZE_CPU
        generator = torch.Generator().manual_seed(0)
        self._matrix = torch.randn(size, size, generator=generator).to(device)
        self.seconds(calls=2)

    def seconds(self, calls: int = 15) -> float:
        """Median seconds of one call."""
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        try:
            self._timer.start()
            for _ in range(calls):
                torch.mm(self._matrix, self._matrix)
                self._timer.mark()
            return median(self._timer.resolve())
        finally:
            torch.set_num_threads(before)


def variation(seconds: Sequence[float]) -> float:
    """Relative standard deviation of reference times; 0 below two of them."""
    return float(variance(seconds) ** 0.5 / fmean(seconds)) if seconds else 0.0


def quiet(seconds: Sequence[float], *, largest_variation: float = QUIET_VARIATION) -> bool:
    """Whether the reference times are many enough (three) and alike enough to compare what ran between them."""
    return len(seconds) >= 3 and variation(seconds) < largest_variation
