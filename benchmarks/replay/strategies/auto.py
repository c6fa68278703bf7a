"""Tightfit itself: the product's schedule, sampler, repeats and stop rule, on rows made of what the table answered.

Source: ``tuner.search.schedule.next_run`` and the sampler ``auto``, called as the worker calls them. The ablations take
the predicted peaks away, or let every run go to its end. On a table with knobs (or values) that the product's
configuration cannot hold its engine is driven alone: :mod:`benchmarks.replay.planner_study`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.replay.oracle import Replay
from benchmarks.replay.planner_study import PlannerStudy, seen_of
from benchmarks.replay.product import ProductStudy
from benchmarks.replay.product_space import knows
from tuner.search.planner.observation import Earlier
from tuner.search.transfer import ALIKE, OTHER_FAMILY

ANOTHER_MODEL = ALIKE * OTHER_FAMILY
"""Similarity of an earlier study of another model family on the same device."""


@dataclass(frozen=True, kw_only=True)
class Auto:
    """The product.

    Attributes:
        predicts: Whether it sees the table's predicted peaks.
        prunes: Whether it may stop a run that is dominated.
        engine_alone: Whether the engine is driven without the schedule (no further windows) on every table.
        transfers: Whether it starts from a study of another grid on the same device (itself replayed, uncharged).
    """

    predicts: bool = True
    prunes: bool = True
    engine_alone: bool = False
    transfers: bool = False

    def __call__(self, replay: Replay) -> None:
        """Searches until the product says that it is enough."""
        whole = knows(replay.table) and not self.engine_alone
        study = ProductStudy if whole else PlannerStudy
        study(replay, predicts=self.predicts, prunes=self.prunes, earlier=self._earlier(replay)).search()

    def _earlier(self, replay: Replay) -> tuple[Earlier, ...]:
        """One earlier study, of another model: a table does not say which models are of one family."""
        if not self.transfers or not replay.others:
            return ()
        table = replay.others[replay.seed % len(replay.others)]
        past = Replay(table, replay.seed)
        replace(self, transfers=False)(past)
        return (Earlier(name=table.name, seen=[seen_of(each) for each in past.asks], similarity=ANOTHER_MODEL),)
