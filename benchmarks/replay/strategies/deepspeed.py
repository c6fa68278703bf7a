"""DeepSpeed's autotuning in its fast mode, on one device (ZeRO stage 0: nothing is sharded).

Source: DeepSpeed's ``deepspeed/autotuning/autotuner.py``, as told in PEERS.md, B1. A profile run at the smallest size
gives the bytes of a sample's activations and of the state (here both are exact, a gift: the table's own peaks at its
two smallest sizes); bmax = (memory - state) // activations. The lower end (the baseline's size) must run. The upper
end is the first of ceil(1.05 bmax), bmax, floor(0.95 bmax) that runs, at most 1024, else bisection, ended when the
gain is below 5 %. Of the sizes from max//2 in three strides those whose accumulation differs from the largest's are
measured, then a walk down from the largest while each step is more than 5 % better. Answer: the fastest measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from benchmarks.replay.oracle import Observation
from benchmarks.replay.row import Row
from benchmarks.replay.strategies.ladder import Ladder, size_of

MOST = 1024
GAIN = 1.05


def fast(ladder: Ladder) -> Row | None:
    """The fastest of the sizes it measures."""
    return _Tuning(ladder).run()


class _Tuning:
    """One search in progress."""

    def __init__(self, ladder: Ladder) -> None:
        self.ladder = ladder
        self.seen: dict[int, Observation] = {}
        self.budget = ladder.replay.table.global_batch_size or ladder.largest

    def run(self) -> Row | None:
        low = max(1, min(size_of(self.ladder.replay.baseline), self.ladder.largest))
        if not self._measure(min(self.ladder.rows)).completed or not self._measure(low).completed:
            return self._fastest()
        high = self._upper(low)
        for size in _candidates(low, high, self.budget):
            self._measure(size)
        self._walk_down(high)
        return self._fastest()

    def _measure(self, size: int) -> Observation:
        """A size, once: its experiments are kept by size."""
        if size not in self.seen:
            self.seen[size] = self.ladder.run(size)
        return self.seen[size]

    def _upper(self, low: int) -> int:
        bmax = self._calculated()
        for size in (math.ceil(1.05 * bmax), bmax, math.floor(0.95 * bmax)):
            if size >= low and self._measure(min(size, MOST, self.ladder.largest)).completed:
                return min(size, MOST, self.ladder.largest)
        return self._bisected(low, bmax)

    def _calculated(self) -> int:
        """(memory - state) // activations of a sample, by the peaks of the two smallest sizes that have one."""
        known = [(size, row.peak_bytes) for size, row in self.ladder.rows.items() if row.peak_bytes is not None][:2]
        limit = self.ladder.replay.limit_bytes
        if len(known) < 2 or limit is None:
            return self.ladder.largest
        (small, less), (large, more) = known
        activations = (more - less) / (large - small)
        state = less - activations * small
        return self.ladder.largest if activations <= 0 else max(1, int((limit - state) // activations))

    def _bisected(self, low: int, high: int) -> int:
        good = low
        while low <= high:
            middle = (low + high) // 2
            seen, before = self._measure(middle), self.seen[good]
            if not seen.completed:
                high = middle - 1
                continue
            better = (seen.throughput or 0.0) > GAIN * (before.throughput or 0.0)
            good, low = max(good, middle), middle + 1
            if middle != good or not better:
                break
        return good

    def _walk_down(self, high: int) -> None:
        below = [size for size in self.seen if size < high]
        stride = max(1, (high - max(below, default=0) + 1) // 3)
        last, size = self._measure(high).throughput or 0.0, high - stride
        while size > 0 and self.budget // size == self.budget // high:
            speed = self._measure(size).throughput or 0.0
            if speed <= GAIN * last:
                return
            last, size = speed, size - stride

    def _fastest(self) -> Row | None:
        ran = [seen for seen in self.seen.values() if seen.completed]
        return max(ran, key=lambda seen: seen.throughput or 0.0).row if ran else None


def _candidates(low: int, high: int, budget: int) -> Iterator[int]:
    """Sizes from ``low`` (at least half of ``high``) in three strides with another accumulation, then ``high``."""
    low = max(low, high // 2)
    for size in range(low, high, max(1, (high - low) // 3)):
        if budget // size != budget // high:
            yield size
    yield high
