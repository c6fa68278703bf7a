"""Accelerate's ``find_executable_batch_size``: shrinks until it fits, by 0.9 or, as its older documents say, by half.

Source: Accelerate's ``find_executable_batch_size``, as told in PEERS.md, B5: from 128 (at most the table's largest
size); out of memory: int(0.9 b); 0 is the end, without an answer. It returns the first size that fits, not the
fastest.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.replay.row import Row
from benchmarks.replay.strategies.ladder import Ladder

START = 128


def nine_tenths(ladder: Ladder) -> Row | None:
    """The ladder of today."""
    return shrink(ladder, lambda size: int(0.9 * size))


def halving(ladder: Ladder) -> Row | None:
    """The ladder of before."""
    return shrink(ladder, lambda size: size // 2)


def shrink(ladder: Ladder, smaller: Callable[[int], int]) -> Row | None:
    """The first size that fits; None when none does."""
    size = min(START, ladder.largest)
    while size > 0:
        if ladder.fits(size):
            return ladder.row(size)
        size = smaller(size)
    return None
