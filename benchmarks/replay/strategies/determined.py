"""Determined's search over DeepSpeed settings in its mode ``asha``: many short bisections, the good ones prolonged.

Source: Determined's ``dsat`` (deprecated), as told in PEERS.md, B2. A lineage is a random choice of the other knobs
and a bisection of the micro-batch: low 1, high 2 bmax - 1 (of a profile run; here the table's largest size); what runs
moves low to b + 1, what fails high to b - 1; low over high ends it. Rung k allows 3 x 2^k trials, five rungs; a
lineage in the better half of its rung is promoted, else a new random lineage starts. 64 trials. It assumes that larger
is better.
"""

from __future__ import annotations

import random

from benchmarks.replay.oracle import Replay
from benchmarks.replay.row import Row, key_of
from benchmarks.replay.strategies.ladder import Ladder, others_of

TRIALS, RUNGS, FIRST_RUNG = 64, 5, 3


def asha(replay: Replay) -> None:
    """Searches."""
    families = {key_of(others_of(row)): row for row in replay.table.rows}
    fresh = [Lineage(replay, row) for _, row in sorted(families.items())]
    random.Random(f"asha {replay.seed}").shuffle(fresh)
    lineages: list[Lineage] = []
    while len(replay.asks) < TRIALS:
        chosen = _promotable(lineages) or (fresh.pop() if fresh else None)
        if chosen is None:
            break
        if chosen in lineages:
            chosen.rung += 1
        else:
            lineages.append(chosen)
        chosen.spend(TRIALS - len(replay.asks))
    replay.stop(replay.best_seen())


class Lineage:
    """One bisection."""

    def __init__(self, replay: Replay, beside: Row) -> None:
        self.ladder = Ladder(replay, beside)
        self.low, self.high = 1, self.ladder.largest
        self.rung, self.trials, self.best = 0, 0, 0.0

    @property
    def over(self) -> bool:
        """Whether nothing is left to bisect."""
        return self.low > self.high

    def spend(self, left: int) -> None:
        """Runs what its rung allows, at most ``left`` trials."""
        while not self.over and left > 0 and self.trials < FIRST_RUNG * 2**self.rung:
            middle = (self.low + self.high) // 2
            seen = self.ladder.run(middle)
            self.trials, left = self.trials + 1, left - 1
            if seen.completed:
                self.low, self.best = middle + 1, max(self.best, seen.throughput or 0.0)
            else:
                self.high = middle - 1


def _promotable(lineages: list[Lineage]) -> Lineage | None:
    """A lineage that is not over and in the better half of its rung, the highest rung first."""
    for rung in range(RUNGS - 2, -1, -1):
        reached = sorted((each for each in lineages if each.rung >= rung), key=lambda each: -each.best)
        for each in reached[: len(reached) // 2]:
            if each.rung == rung and not each.over:
                return each
    return None
