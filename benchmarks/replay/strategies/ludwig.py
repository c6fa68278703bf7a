"""Ludwig's batch size tuner: doubles while samples per second rise. The one mainstream tuner that looks at throughput.

Source: PEERS.md, B9, and Ludwig's ``ludwig/utils/batch_size_tuner.py`` (``select_best_batch_size``): from 2, the
median of five steps, stops at the first drop of throughput, the first out-of-memory or after 20 trials; the answer is
the last that was better, 2 when there is none. Its cap (a fifth of the data set) is the table's largest size here.
"""

from __future__ import annotations

from benchmarks.replay.row import Row
from benchmarks.replay.strategies.ladder import Ladder

START, STEPS, TRIALS = 2, 5, 20


def doubling(ladder: Ladder) -> Row:
    """The last size that was faster than the one before."""
    size, best, speed = START, START, 0.0
    for _ in range(TRIALS):
        if size > ladder.largest:
            break
        seen = ladder.run(size, steps=STEPS)
        if not seen.completed or (seen.throughput or 0.0) < speed:
            break
        best, speed, size = size, seen.throughput or 0.0, 2 * size
    return ladder.row(best)
