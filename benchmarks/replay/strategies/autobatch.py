"""Ultralytics' AutoBatch: measures the memory of a few sizes and solves for 60 % of what is free.

Source: Ultralytics' ``AutoBatch``, as told in PEERS.md, B9: one pass at 1, 2, 4, 8, 16 (32, 64 where memory allows;
here up to the first failure); a line through log(memory) over log(size), solved for 60 % of the free memory (here: of
the limit); an answer at or above the first size that failed gives the size before it; outside 1 to 1024 it is 16.
Without peaks in the table, or without a limit, it takes its default of 16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from benchmarks.replay.row import Row
from benchmarks.replay.strategies.ladder import Ladder

SIZES = (1, 2, 4, 8, 16, 32, 64)
SHARE, DEFAULT, MOST = 0.6, 16, 1024


def solve(ladder: Ladder) -> Row:
    """The size whose memory is 60 % of the limit."""
    tried, peaks, failed = [], [], None
    for size in (each for each in SIZES if each <= ladder.largest):
        seen = ladder.run(size, steps=1)
        if not seen.completed:
            failed = size
            break
        if seen.peak_bytes:
            tried.append(size)
            peaks.append(seen.peak_bytes)
    wanted = _solved(tried, peaks, ladder.replay.limit_bytes)
    if failed is not None and wanted >= failed:
        wanted = max(1, failed // 2)
    return ladder.row(wanted if 1 <= wanted <= MOST else DEFAULT)


def _solved(sizes: Sequence[int], peaks: Sequence[int], limit_bytes: int | None) -> int:
    if len(sizes) < 2 or limit_bytes is None:
        return DEFAULT
    slope, offset = np.polyfit(np.log(sizes), np.log(peaks), 1)
    exponent = (math.log(SHARE * limit_bytes) - offset) / slope if slope > 0 else math.inf
    return int(math.exp(exponent)) if exponent < math.log(2 * MOST) else 2 * MOST
