"""Optuna's ask-and-tell loop over a table, for any of its samplers.

Source: Optuna 5.0's documentation ("Ask-and-Tell Interface", "Constraints") and the installed source of its samplers.
What a careful user does is done: numbers are searched by their rank, a configuration run before is answered from the
store without a run, one that the table does not have is told as a misfit without a run, and after some such answers in
a row the untried row nearest to the last proposal is run. Failures are told as PEERS.md and FACTS.md found best
(COMPLETE with the worst values and a violated constraint) or as FAIL.

A sampler has no stop of its own: it counts as stopped after :data:`TRIALS` runs, and goes on until it hits or the
table is exhausted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.replay.knob_values import Values, values_of
from benchmarks.replay.oracle import Observation, Replay
from benchmarks.replay.row import Row
from benchmarks.replay.strategies import random

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

TRIALS = 40
"""Runs of a study by default, here as in Tightfit's specs."""

PATIENCE = 25
"""Proposals answered without a run, in a row, before the untried row nearest to the last is run."""

CONSTRAINT = "fits"
TEACHES = frozenset({"device_oom", "numerical", "unsupported", "timeout"})

MakeSampler = Callable[[int], "BaseSampler"]
"""Seed -> sampler."""

Refuses = Callable[[Replay, Row], bool]
"""Whether a row is left out without a run."""


@dataclass(frozen=True, kw_only=True)
class SamplerLoop:
    """One Optuna sampler as a strategy.

    Attributes:
        make_sampler: Makes it.
        two_objectives: Throughput and peak memory; False: throughput alone, memory as the constraint only.
        failures_told: Whether a misfit is told as a violated constraint; False: as FAIL, which samplers ignore.
        refuses: What is left out without a run.
        patience: See :data:`PATIENCE`; less for a sampler whose proposals take long.
        models: After so many runs the rest is drawn at random; None: never.
    """

    make_sampler: MakeSampler
    two_objectives: bool = True
    failures_told: bool = True
    refuses: Refuses = lambda _replay, _row: False
    patience: int = PATIENCE
    models: int | None = None

    def __call__(self, replay: Replay) -> None:
        """Searches."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _Loop(self, replay).run()


class _Loop:
    """One search in progress."""

    def __init__(self, plan: SamplerLoop, replay: Replay) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.plan, self.replay = plan, replay
        self.values = values_of(replay.table)
        sampler = plan.make_sampler(replay.seed)
        self.study: Study = _study(sampler, two_objectives=plan.two_objectives)
        self.distributions = _distributions(self.values)
        self.known: dict[str, Observation] = {}
        self._add(replay.first)

    def run(self) -> None:
        """Until nothing is left, or nothing could change."""
        for row in self._proposals():
            self._add(self.replay.ask(row), told=False)
            if len(self.replay.asks) == self.plan.models:
                self.study.sampler = random.make(self.replay.seed)
            if len(self.replay.asks) >= TRIALS:
                self.replay.stop(self.replay.best_seen())
            if not self.replay.going:
                break
        self.replay.stop(self.replay.best_seen())

    def _proposals(self) -> Iterator[Row]:
        """Rows to run; what was asked of Optuna for them is told when the next one is wanted."""
        while self._free():
            for _ in range(self.plan.patience):
                trial = self.study.ask(dict(self.distributions))
                wanted = self.values.from_ranks(trial.params)
                row = self.values.row(wanted)
                if row is not None and row.key not in self.known and not self.plan.refuses(self.replay, row):
                    yield row
                    self._tell(trial, self.known[row.key])
                    break
                self._tell(trial, None if row is None else self.known.get(row.key))
            else:
                nearest = min(self._free(), key=lambda each: self.values.distance(each, wanted))
                yield nearest
                self._insert(self.known[nearest.key])

    def _free(self) -> list[Row]:
        rows = self.replay.table.rows
        return [row for row in rows if row.key not in self.known and not self.plan.refuses(self.replay, row)]

    def _add(self, seen: Observation, *, told: bool = True) -> None:
        self.known[seen.row.key] = seen
        if told:
            self._insert(seen)

    def _insert(self, seen: Observation) -> None:
        """Adds a run that Optuna did not propose."""
        import optuna

        told = self._told(seen)
        self.study.add_trial(
            optuna.create_trial(
                state=_state("FAIL" if told is None else "COMPLETE"),
                values=None if told is None else told[0],
                params=self.values.to_ranks(seen.row),
                distributions=dict(self.distributions),
                constraints=None if told is None else {CONSTRAINT: told[1]},
            )
        )

    def _tell(self, trial: Any, seen: Observation | None) -> None:
        """Tells what came of a proposal; None: it cannot be run."""
        told = self._misfit() if seen is None else self._told(seen)
        if told is None:
            self.study.tell(trial, state=_state("FAIL"))
            return
        trial.set_constraint(CONSTRAINT, told[1])
        self.study.tell(trial, told[0])

    def _told(self, seen: Observation) -> tuple[list[float], float] | None:
        """Values and constraint; None for FAIL."""
        if seen.throughput is None:
            return self._misfit() if seen.outcome in TEACHES else None
        peak = float(seen.peak_bytes or 0)
        limit = self.replay.limit_bytes
        values = [seen.throughput, peak] if self.plan.two_objectives else [seen.throughput]
        return values, -1.0 if not limit else (peak - limit) / limit

    def _misfit(self) -> tuple[list[float], float] | None:
        if not self.plan.failures_told:
            return None
        worst = float(self.replay.limit_bytes or max(row.peak_bytes or 0 for row in self.replay.table.rows))
        return [0.0, worst] if self.plan.two_objectives else [0.0], 1.0


def _study(sampler: BaseSampler, *, two_objectives: bool) -> Study:
    import optuna

    if two_objectives:
        return optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    return optuna.create_study(direction="maximize", sampler=sampler)


def _distributions(values: Values) -> Mapping[str, BaseDistribution]:
    """Numbers by their rank, everything else categorical."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return {
        name: IntDistribution(0, len(choices) - 1) if name in values.ordered else CategoricalDistribution(choices)
        for name, choices in values.varying.items()
    }


def _state(name: str) -> Any:
    from optuna.trial import TrialState

    return TrialState[name]
