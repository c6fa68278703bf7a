"""The product's rule that stops a dominated run, asked step by step in a replay. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.replay.oracle import Watch
from benchmarks.replay.row import Row
from tuner.search.pruning import PruningRule, Steps


def watched(rule: PruningRule, row: Row) -> Watch:
    """The rule as the replay asks it, for a run of this row."""
    units = row.units_per_step

    def watch(steps: Sequence[float], peak: int | None) -> float | None:
        return rule.bound(Steps(seconds=steps, units=[units] * len(steps), elapsed=steps), peak or 0)

    return watch
