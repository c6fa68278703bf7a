"""The engine that knows the physics (:mod:`tuner.search.planner`), asked on our rows."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from objectives.config import TrainingConfig
from objectives.knobs import canonical, config_key
from storage.records import TrialRecord
from tuner.search.front import best_trial
from tuner.search.memory_order import outgrown
from tuner.search.samplers.neighbours import changes
from tuner.search.samplers.proposer import Exhausted, Proposer, SearchTask
from tuner.search.space import EXACT_SIZE, Params
from tuner.search.transfer import seen_of

if TYPE_CHECKING:
    from tuner.search.planner.candidates import Candidates
    from tuner.search.planner.observation import Seen

SAMPLED = 6_000
"""Of a space too large to list, so many random configurations are looked at, and all that are near the best so far."""

NOTHING_LEFT = "nothing is left to try"


@dataclass(frozen=True, kw_only=True)
class PlannerProposer:
    """Asks the planner. What it keeps between calls are encodings, nothing it knows.

    Attributes:
        task: What it searches.
    """

    task: SearchTask
    _known: dict[str, Candidates] = field(default_factory=dict, repr=False)

    def propose(self, history: Sequence[TrialRecord], running: Sequence[TrialRecord]) -> TrainingConfig | Exhausted:
        """See :class:`tuner.search.samplers.proposer.Proposer`."""
        from tuner.search.planner.planner import Planner

        candidates = self._candidates(history, running)
        if candidates is None:
            return Exhausted(reason="every configuration certainly needs more memory than there is")
        planner = Planner(
            candidates,
            limit_bytes=self.task.limit_bytes,
            device_kind=self.task.device_kind or self.task.space.facts.device_kind,
            seed=self.task.seed,
            earlier=self.task.earlier,
            loader_capacities=self.task.loader_capacities,
        )
        seen = [self._seen(trial) for trial in history if not outgrown(trial, self.task.limit_bytes)]
        plan = planner.plan(seen, [_mapping(trial) for trial in running])
        if plan.config is not None:
            return TrainingConfig.from_mapping(plan.config)
        return Exhausted(reason=plan.stop or NOTHING_LEFT, kind="exhausted" if plan.kind == "run" else plan.kind)

    def _seen(self, trial: TrialRecord) -> Seen:
        return replace(seen_of(trial), config=_mapping(trial))

    def _candidates(self, history: Sequence[TrialRecord], running: Sequence[TrialRecord]) -> Candidates | None:
        """All configurations that may be asked for; None when there is none."""
        if self.task.space.combinations <= EXACT_SIZE:
            return self._encoded("space", self.task.space.keyed())
        best = best_trial(history, self.task.limit_bytes) or next(iter(history), None)
        pool = dict(self._sample)
        for config in self._beside(best):
            pool.setdefault(config_key(config), config)
        name = f"beside {best.config_key}" if best is not None else "sample"
        return self._encoded(name, pool.items())

    def _encoded(self, name: str, pool: Iterable[tuple[str, TrainingConfig]]) -> Candidates | None:
        from tuner.search.planner.candidates import Candidates

        if name not in self._known:
            kept = [(key, config.to_mapping()) for key, config in pool if key not in self.task.predicted_misfits]
            if not kept:
                return None
            keys = [key for key, _ in kept]
            peaks = self.task.predicted_peak_bytes
            self._known.clear()
            self._known[name] = Candidates.of(
                [config for _, config in kept],
                keys=keys,
                predicted_peak_bytes=[peaks.get(key) for key in keys],
                wide=[key in self.task.wide_predictions for key in keys],
            )
        return self._known[name]

    @cached_property
    def _sample(self) -> Mapping[str, TrainingConfig]:
        """Random configurations of a space too large to list, each once; the same for a seed."""
        return {config_key(config): config for config in islice(self._drawn(), SAMPLED)}

    def _drawn(self) -> Iterator[TrainingConfig]:
        chance = random.Random(self.task.seed)
        for _ in range(4 * SAMPLED):
            params: Params = {name: chance.choice(values) for name, values in self.task.space.values.items()}
            try:
                yield self.task.space.config(params)
            except ValueError:
                continue

    def _beside(self, best: TrialRecord | None) -> Iterator[TrainingConfig]:
        """One and two changes away from the best so far."""
        if best is None:
            return
        for first in changes(self.task.space, TrainingConfig.from_mapping(best.config)):
            yield first.config
            for second in changes(self.task.space, first.config):
                yield second.config


def _mapping(trial: TrialRecord) -> dict[str, int | str | bool]:
    """The configuration as the space would write it: knobs that do not act at their defaults."""
    return canonical(TrainingConfig.from_mapping(trial.config)).to_mapping()


def build(task: SearchTask) -> Proposer:
    """The proposer of ``sampler: auto``."""
    return PlannerProposer(task=task)
