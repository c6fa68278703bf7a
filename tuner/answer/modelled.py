"""The search's own cost model, asked what each part of a joint change is worth. Pure.

It has learned from all trials of the study, so it tells apart what no pair of trials does. The only model here that is
never used to choose anything: it splits a total that was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from objectives.config import TrainingConfig
from tuner.search.transfer import seen_of

if TYPE_CHECKING:
    from tuner.answer.summary import StudyView
    from tuner.search.planner.candidates import Candidates
    from tuner.search.planner.cost_model import CostModel

FEWEST_TRIALS = 4
"""Measured trials below which the model would only repeat its prior."""


@dataclass(frozen=True, kw_only=True)
class StudyModel:
    """The cost model after a study, for some configurations."""

    costs: CostModel
    candidates: Candidates

    def predict(self, config: TrainingConfig) -> tuple[float, float]:
        """Mean and standard deviation of log throughput.

        Raises:
            KeyError: Not one of the configurations it was made for.
        """
        import numpy as np

        place = self.candidates.place(config.to_mapping())
        if place is None:
            raise KeyError(config)
        _, variances = self.costs.compute.marginals(self.costs.points.at(np.array([place])))
        return float(self.costs.log_rates()[place]), math.sqrt(float(variances[0]))


def study_models(view: StudyView) -> Callable[[Sequence[TrainingConfig]], StudyModel | None]:
    """Makes the model for the configurations of one joint change; None where too little was measured to learn from."""

    def made(configs: Sequence[TrainingConfig]) -> StudyModel | None:
        from tuner.search.planner.candidates import Candidates
        from tuner.search.planner.cost_model import CostModel

        seen = [seen_of(trial) for trial in view.history.finished]
        if sum(each.measured for each in seen) < FEWEST_TRIALS:
            return None
        candidates = Candidates.of([config.to_mapping() for config in configs])
        return StudyModel(
            costs=CostModel(candidates, seen, device_kind=view.history.device_kind), candidates=candidates
        )

    return made
