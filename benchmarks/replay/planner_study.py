"""Drives Tightfit's search engine alone, for tables with knobs that its configuration cannot hold.

The engine (``tuner.search.planner``) knows no knob by name, so it works on any table; the schedule around it does not.
What differs from a whole study: no further windows of the baseline and of contenders, and the answer is what the
engine's model holds for the fastest. The ends are the same: nothing left to gain, everything tried, or the limit of
trials. So is the rule that stops a dominated run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.replay.oracle import Observation, Replay, Watch
from benchmarks.replay.pruned import watched
from benchmarks.replay.row import Row
from tuner.search.noise import pooled_spread, t_quantile
from tuner.search.planner.candidates import Candidates
from tuner.search.planner.observation import Earlier, Seen
from tuner.search.planner.planner import Planner, PlannerOptions
from tuner.search.pruning import FEWEST_MEASURED, FrontPoint, PruningRule
from tuner.spec.model import Limits


class PlannerStudy:
    """One search of the engine over a table."""

    def __init__(
        self, replay: Replay, *, predicts: bool = True, prunes: bool = True, earlier: Sequence[Earlier] = ()
    ) -> None:
        self.replay, self.prunes = replay, prunes
        self.rows = replay.table.rows
        self.kind = replay.table.device_kind
        self.planner = Planner(
            Candidates.of(
                [dict(row.config) for row in self.rows],
                predicted_peak_bytes=[row.predicted_bytes if predicts else None for row in self.rows],
            ),
            limit_bytes=replay.limit_bytes,
            device_kind=self.kind,
            seed=replay.seed,
            earlier=earlier,
            options=PlannerOptions(use_predictions=predicts),
        )

    def search(self) -> None:
        """Until the engine stops, or the limit of trials is reached."""
        while len(self.replay.asks) < Limits().trials:
            plan = self.planner.plan(self._seen())
            if plan.index is None:
                break
            row = self.rows[plan.index]
            self.replay.ask(row, self._watch(row))
        best = self.planner.best(self._seen())
        self.replay.stop(None if best is None else self.replay.asks[best].row)

    def _seen(self) -> list[Seen]:
        return [seen_of(each) for each in self.replay.asks]

    def _watch(self, row: Row) -> Watch | None:
        measured = [each for each in self.replay.asks if each.completed and each.peak_bytes is not None]
        if not self.prunes or not row.step_seconds or len(measured) < FEWEST_MEASURED:
            return None
        spread = pooled_spread([], self.kind)
        low = math.exp(-t_quantile(spread.freedom) * spread.relative)
        rule = PruningRule(
            front=[
                FrontPoint(throughput_low=(each.throughput or 0.0) * low, peak_bytes=each.peak_bytes or 0)
                for each in measured
            ],
            spread=spread,
            window_seconds=sum(row.step_seconds),
            device_kind=self.kind,
        )
        return watched(rule, row)


def seen_of(each: Observation) -> Seen:
    """A run as the engine takes it."""
    row = each.row
    return Seen(
        config=dict(row.config),
        outcome=each.outcome,
        throughput=each.throughput,
        is_bound=each.outcome == "pruned",
        peak_memory_bytes=each.peak_bytes,
        seconds=each.seconds,
        setup_seconds=row.setup_seconds,
        compile_seconds=row.compile_seconds,
        data_stall_share=row.data_stall_share if each.completed else None,
    )
