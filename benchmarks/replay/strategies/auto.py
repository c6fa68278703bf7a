"""Tightfit itself: the product's schedule, sampler, repeats and stop rule, on rows made of what the table answered.

Source: ``tuner.search.schedule.next_run`` and the sampler ``auto``, called as the worker calls them. The ablations take
the predicted peaks away, or let every run go to its end.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.replay.oracle import Replay
from benchmarks.replay.product import ProductStudy


@dataclass(frozen=True, kw_only=True)
class Auto:
    """The product.

    Attributes:
        predicts: Whether it sees the table's predicted peaks.
        prunes: Whether it may stop a run that is dominated.
    """

    predicts: bool = True
    prunes: bool = True

    def __call__(self, replay: Replay) -> None:
        """Searches until the product says that it is enough."""
        ProductStudy(replay, predicts=self.predicts, prunes=self.prunes).search()
