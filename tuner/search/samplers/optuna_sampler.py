"""The engine as a sampler for anybody's Optuna study over these knobs, and over knobs it has never seen.

::

    def objective(trial):
        size = trial.suggest_categorical("micro_batch_size", [1, 2, 4, 8, 16])  # or suggest_int
        precision = trial.suggest_categorical("precision", ["fp32", "bf16-mixed"])
        result = train_a_little(size, precision)
        trial.set_constraint("fits", (result.peak_bytes - LIMIT) / LIMIT)
        return result.tokens_per_second, result.peak_bytes

    study = optuna.create_study(directions=["maximize", "minimize"], sampler=tuner.TightfitSampler(seed=0))
    study.enqueue_trial({"micro_batch_size": 4, "precision": "fp32"})  # the baseline, if there is one
    study.optimize(objective, n_trials=40)  # ends by itself when nothing is left to gain

One objective: the throughput (or, minimised, the time of a unit). Two: the peak memory in bytes as well. What did not
fit is told as COMPLETE with a throughput of 0 and a violated constraint (Optuna's samplers learn nothing from FAIL), or
with the user attribute ``outcome`` set to one of this project's outcomes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.search.planner.observation import Config, Earlier, LoaderCapacity, Seen
from tuner.search.planner.planner import Plan, Planner, PlannerOptions
from tuner.search.samplers.optuna_grid import Grid, Reading

STOP_REASON = "tightfit_stop_reason"
"""User attribute of the study: why the sampler ended it."""

_LOGGER = optuna.logging.get_logger("optuna.tightfit")


class TightfitSampler(BaseSampler):
    """Chooses the configuration with the largest expected gain per second of device time.

    Args:
        memory_limit_bytes: What the peak may be at most; None where only the constraint knows.
        device_kind: ``cuda`` or ``cpu``: what is believed of the knobs before any run.
        seed: Same trials and same seed give the same proposal.
        stops: Whether it ends ``study.optimize`` when everything left cannot be expected to improve the best by
            ``options.stop_share``.
        earlier: What earlier studies taught.
        loader_capacities: Loader settings measured without training.
        options: How to search.
    """

    def __init__(
        self,
        *,
        memory_limit_bytes: int | None = None,
        device_kind: str = "cuda",
        seed: int | None = None,
        stops: bool = True,
        earlier: Sequence[Earlier] = (),
        loader_capacities: Sequence[LoaderCapacity] = (),
        options: PlannerOptions | None = None,
    ) -> None:
        self._limit = memory_limit_bytes
        self._device_kind = device_kind
        self._seed = seed or 0
        self._stops = stops
        self._earlier = tuple(earlier)
        self._capacities = tuple(loader_capacities)
        self._options = options or PlannerOptions()
        self._random = RandomSampler(seed=seed)
        self._space = IntersectionSearchSpace(include_pruned=True)
        self._grids: dict[tuple[Any, ...], Grid] = {}

    def reseed_rng(self) -> None:
        """Optuna calls it in parallel workers: only the random part differs between them."""
        self._random.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The parameters that all trials so far have in common, those with a single value left out."""
        common = self._space.calculate(study)
        return {name: each for name, each in common.items() if not each.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The planner's next configuration; nothing (and so a random one) when it has none left."""
        if not search_space:
            return {}
        grid = self._grid(search_space)
        ended, running = self._told(study, grid, trial.number)
        plan = self._planner(grid, replace(self._options, stop_share=0.0, stop_risk=0.0)).plan(ended, running)
        return {} if plan.index is None else grid.params(plan.index)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The very first trial takes the first choice and the lowest number; later what is not common is random."""
        if trial.number == 0:
            return Grid.of({param_name: param_distribution}, self._seed).params(0)[param_name]
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Ends the study when nothing is left to gain."""
        self._random.after_trial(study, trial, state, values)
        if not self._stops or not (space := self.infer_relative_search_space(study, trial)):
            return
        plan = self._after(study, trial, state, values, self._grid(space))
        if plan is None or plan.stop is None:
            return
        try:
            study.stop()
        except RuntimeError:  # ask and tell: the caller asks as long as they like
            return
        study.set_user_attr(STOP_REASON, plan.stop)
        _LOGGER.info(plan.stop)

    def _after(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None, grid: Grid
    ) -> Plan | None:
        """The plan with this trial's end, which Optuna has not stored yet."""
        ended, running = self._told(study, grid, trial.number)
        config = grid.config(trial.params)
        if config is None:
            return None
        mine = self._reading(study).seen(trial, config, state, values)
        return self._planner(grid, self._options).plan([*ended, mine], running)

    def _told(self, study: Study, grid: Grid, but: int) -> tuple[list[Seen], list[Config]]:
        """What has ended and what runs, as the planner takes it; one trial left out."""
        reading, ended, running = self._reading(study), [], list[Config]()
        for each in study.get_trials(deepcopy=False):
            config = grid.config(each.params)
            if each.number == but or config is None:
                continue
            if each.state.is_finished():
                ended.append(reading.seen(each, config, each.state, each.values))
            elif each.state == TrialState.RUNNING:
                running.append(config)
        return ended, running

    def _reading(self, study: Study) -> Reading:
        if len(study.directions) > 2:
            raise ValueError(
                f"TightfitSampler takes one objective (throughput) or two (throughput, peak memory in bytes), "
                f"not {len(study.directions)}: make the others user attributes"
            )
        if len(study.directions) == 2 and study.directions[1] != StudyDirection.MINIMIZE:
            raise ValueError("the second objective is the peak memory in bytes: its direction is 'minimize'")
        return Reading(
            higher_is_better=study.directions[0] == StudyDirection.MAXIMIZE, has_peak=len(study.directions) == 2
        )

    def _grid(self, search_space: Mapping[str, BaseDistribution]) -> Grid:
        key = tuple(sorted((name, repr(each)) for name, each in search_space.items()))
        if key not in self._grids:
            self._grids = {key: Grid.of(search_space, self._seed)}
        return self._grids[key]

    def _planner(self, grid: Grid, options: PlannerOptions) -> Planner:
        return Planner(
            grid.candidates,
            limit_bytes=self._limit,
            device_kind=self._device_kind,
            seed=self._seed,
            earlier=self._earlier,
            loader_capacities=self._capacities,
            options=options,
        )
