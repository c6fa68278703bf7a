"""Composer's automatic micro-batch: halves the live batch until it fits. It never grows, and measures no time.

Source: Composer's ``device_train_microbatch_size='auto'``, as told in PEERS.md, B4: run the live per-rank batch; out
of memory: max(b//2, 1) and again; 1 failing is an error. It starts from the global batch, at most the table's largest
size.
"""

from __future__ import annotations

from benchmarks.replay.row import Row
from benchmarks.replay.strategies.ladder import Ladder


def halving(ladder: Ladder) -> Row | None:
    """The first size that fits; None when not even 1 does."""
    size = min(ladder.replay.table.global_batch_size or ladder.largest, ladder.largest)
    while not ladder.fits(size):
        if size == 1:
            return None
        size = max(size // 2, 1)
    return ladder.row(size)
