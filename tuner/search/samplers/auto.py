"""The engine that knows the physics (:mod:`tuner.search.planner`), asked on our rows.

Replayed on the dev tables (2026-12-01: real recordings of a small GPT-2 and a small Llama on one CPU core, 90 and 72
configurations, whole and cut at five memory caps; run-to-run spread 5 %). Each strategy 20 seeds a table (those below
the line 10 or 20): geometric mean over grids of the median device-seconds to within 1 % (here: twice the tables'
standard error, 3 to 4 %), launches out of memory (median, mean), and searches whose own answer misses that::

    auto                          6.0 s    0   0.3    6 of 140    ends after 9 runs, 23 s (median)
    auto without prediction       8.5 s    0   0.2    8 of 140
    auto, engine alone            6.0 s    0   0.3   10 of 140    without further windows of contenders
    ------------------------------------------------------------------------------------------------
    ludwig doubling + best knobs  6.9 s    1   0.7    4 of 140    told the other knobs' best values beforehand
    deepspeed fast + best knobs  13.1 s    2   2.1   26 of 140    told them, too
    tpe, one objective           31.8 s   12  10.8   22 of 140
    tpe                          38.8 s    7   7.2   24 of 140
    nsga2                        55.2 s    7   7.5   38 of 140
    random                       69.2 s   10  10.4   61 of 140

Baseline plus best alone (the floor) are 5 to 8 s. These tables set the priors' constants, so the figures are kinder
than those of tables never tuned on (``benchmarks/tables/eval``). What brought it there, in seconds of the engine alone
(12 seeds, cuts as they stood that hour): 14.8; 10.6 with effects of the micro-batch alike over 1.5 octaves instead of
2.5 and main effects that a few runs cannot shrink; 8.3 with a cost of outgrowing the caches; 7.6 with the half
precisions' effects related; 6.0 without an opinion on eager attention on a CPU. A stricter stop brought no fewer wrong
answers: they come from one unlucky reading, and the schedule's further windows mend some of them.

One proposal took 0.040 s with predictions and 0.047 s without, of one thread, with 500 finished trials and 20,000
candidates, and 0.005 s with 12 trials and 504 (BLAS with one thread; on a busy machine several wait for each other).
"""

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
            peaks = self.task.predicted_peak_bytes  # with them the planner judges anew after every run
            left_out = self.task.predicted_misfits - peaks.keys()
            kept = [(key, config.to_mapping()) for key, config in pool if key not in left_out]
            if not kept:
                return None
            keys = [key for key, _ in kept]
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
