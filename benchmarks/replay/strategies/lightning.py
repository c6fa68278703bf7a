"""Lightning's batch size finder: ``power`` and ``binsearch``. Time is never measured; the goal is the largest size.

Source: Lightning's ``BatchSizeFinder``, as told in PEERS.md, B3: from 2, three steps a trial, at most 25 trials.
``power`` doubles until out of memory, halves once and returns. ``binsearch`` doubles until out of memory, bisects
until high - low <= 1, then returns floor(0.95 b). Doubling stops at the cap (there the data set's length, here the
table's largest size).
"""

from __future__ import annotations

import math

from benchmarks.replay.row import Row
from benchmarks.replay.strategies.ladder import Ladder

START, STEPS, TRIALS = 2, 3, 25
MARGIN = 0.95


def power(ladder: Ladder) -> Row:
    """Doubling."""
    size = min(START, ladder.largest)
    for _ in range(TRIALS):
        if not ladder.fits(size, steps=STEPS):
            return ladder.row(size // 2)
        if size == ladder.largest:
            break
        size = min(2 * size, ladder.largest)
    return ladder.row(size)


def binsearch(ladder: Ladder) -> Row:
    """Doubling, then bisection."""
    low, high, size = 1, None, min(START, ladder.largest)
    for _ in range(TRIALS):
        if ladder.fits(size, steps=STEPS):
            low = size
        else:
            high = size
        if (high is None and low >= ladder.largest) or (high is not None and high - low <= 1):
            break
        size = min(2 * low, ladder.largest) if high is None else (low + high) // 2
    return ladder.row(math.floor(MARGIN * low))
