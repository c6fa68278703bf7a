"""What the batch-only peers climb: the table's micro-batches beside one choice of the other knobs.

The peers search the micro-batch alone. They get the other knobs of the baseline or, in a second line, those of the
table's best row (which no peer could know). A size that the table does not have means the nearest that it has (by
ratio; of two the smaller). A size above its largest means the largest: the peers' own caps, the length of the data
set or the global batch, act the same way, and cost nothing. Trying a size again costs again, but for the baseline's own
first run, which is charged to all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from benchmarks.replay.grid import MICRO_BATCH
from benchmarks.replay.oracle import Observation, Replay
from benchmarks.replay.row import Row

Others = Literal["baseline", "best"]


class Ladder:
    """Micro-batches to try, all else fixed."""

    def __init__(self, replay: Replay, beside: Row) -> None:
        self.replay = replay
        others = others_of(beside)
        rows = [row for row in replay.table.rows if others_of(row) == others]
        self.rows = {size_of(row): row for row in sorted(rows, key=size_of)}
        self._baseline_used = False

    @property
    def largest(self) -> int:
        """The largest size."""
        return max(self.rows)

    def row(self, size: int) -> Row:
        """The row that stands for a size."""
        wanted = max(1, size)
        return self.rows[min(self.rows, key=lambda each: (abs(math.log(each / wanted)), each))]

    def run(self, size: int, *, steps: int | None = None) -> Observation:
        """Tries a size."""
        row = self.row(size)
        if row.key == self.replay.first.row.key and not self._baseline_used:
            self._baseline_used = True
            return self.replay.first
        return self.replay.ask(row, steps=steps)

    def fits(self, size: int, *, steps: int | None = None) -> bool:
        """Tries a size: whether it ran."""
        return self.run(size, steps=steps).completed


Climb = Callable[[Ladder], Row | None]
"""A batch-only strategy: climbs, and returns its answer."""


def beside(climb: Climb, others: Others) -> Callable[[Replay], None]:
    """The strategy with the other knobs of the baseline, or of the table's best row."""

    def search(replay: Replay) -> None:
        row = replay.baseline if others == "baseline" else replay.table.best
        replay.stop(climb(Ladder(replay, row)))

    return search


def others_of(row: Row) -> dict[str, object]:
    """Its knobs without the micro-batch."""
    return {name: value for name, value in row.config.items() if name != MICRO_BATCH}


def size_of(row: Row) -> int:
    """Its micro-batch; 1 where it has none."""
    value = row.config.get(MICRO_BATCH)
    return value if isinstance(value, int) and value > 0 else 1
