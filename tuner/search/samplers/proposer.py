"""What every sampler answers, and the engine that asks an Optuna sampler on a study rebuilt from our rows.

Optuna is imported inside functions: the command line must start without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, Protocol

from objectives.config import KnobValue, TrainingConfig
from objectives.knobs import config_key, knob
from storage.records import TrialRecord
from tuner.search.front import pareto_front
from tuner.search.memory_order import MisfitMemory, learn_misfits, outgrown
from tuner.search.planner.observation import Earlier, LoaderCapacity
from tuner.search.samplers.neighbours import changes
from tuner.search.space import Params, Space
from tuner.search.told import CONSTRAINT, Told, told

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.trial import Trial

ASKS = 25
"""Proposals answered from the store, or as certain misfits, before the free one nearest to the last is taken."""

LATEST = 1_000
"""Trials an Optuna sampler hears of beside the front: telling it of 5,000 took longer than a run (0.2 ms each)."""

NEIGHBOURS = 5_000
"""Free configurations compared at most when the nearest one is taken."""


@dataclass(frozen=True, kw_only=True)
class Exhausted:
    """Nothing is left that should be tried.

    Attributes:
        reason: For people.
        kind: ``nothing_to_gain`` when configurations are left, and none of them is worth a run.
    """

    reason: str
    kind: Literal["exhausted", "nothing_to_gain"] = "exhausted"


class Proposer(Protocol):
    """Chooses the next configuration. Stateless: everything it knows is in the rows it is given."""

    def propose(self, history: Sequence[TrialRecord], running: Sequence[TrialRecord]) -> TrainingConfig | Exhausted:
        """The next configuration to try: inside the space, never seen before, never a certain misfit.

        Args:
            history: Finished trials in the order of their numbers, the baseline included.
            running: Trials without an outcome, on whichever worker.
        """


@dataclass(frozen=True, kw_only=True)
class SearchTask:
    """What a proposer is made for.

    Attributes:
        space: The legal configurations.
        seed: Same rows and same seed give the same proposal.
        limit_bytes: What the peak may be at most; None for no limit.
        skip_misfits: Whether certain misfits are left out (``grid`` runs them too: its tables are complete).
        predicted_misfits: Keys of configurations whose predicted peak certainly is over the limit; left out as well.
        predicted_peak_bytes: Raw predicted peaks by configuration key, of those that have one (this and all that
            follows is used by ``auto`` alone).
        wide_predictions: Keys of predictions that called themselves uncertain.
        earlier: What earlier studies taught about the knobs.
        loader_capacities: Loader settings measured without training.
        device_kind: ``cpu`` or ``cuda``: which priors; None for the kind that the space's facts name.
    """

    space: Space
    seed: int = 0
    limit_bytes: int | None = None
    skip_misfits: bool = True
    predicted_misfits: frozenset[str] = frozenset()
    predicted_peak_bytes: Mapping[str, int] = field(default_factory=dict)
    wide_predictions: frozenset[str] = frozenset()
    earlier: tuple[Earlier, ...] = ()
    loader_capacities: tuple[LoaderCapacity, ...] = ()
    device_kind: str | None = None


class Free:
    """Which configurations may still be proposed. A cancelled trial said nothing about its own: it may come again."""

    def __init__(self, task: SearchTask, history: Sequence[TrialRecord], running: Sequence[TrialRecord]) -> None:
        self.space = task.space
        spoken = (each for each in (*history, *running) if each.outcome != "cancelled")
        known = (each for each in spoken if not outgrown(each, task.limit_bytes))
        self.stored: Mapping[str, TrialRecord] = {each.config_key: each for each in known}
        self.predicted = task.predicted_misfits if task.skip_misfits else frozenset[str]()
        self.misfits = learn_misfits(history, task.limit_bytes) if task.skip_misfits else MisfitMemory()

    def allows(self, config: TrainingConfig) -> bool:
        """Not seen yet, and not certain to need more than there is."""
        return self.allows_key(config_key(config), config)

    def allows_key(self, key: str, config: TrainingConfig) -> bool:
        """As :meth:`allows`, for a configuration whose key is known."""
        return self._is_new(key) and not self._misfit(config)

    def _is_new(self, key: str) -> bool:
        return key not in self.stored and key not in self.predicted

    def _misfit(self, config: TrainingConfig) -> bool:
        return self.misfits.refuses(config)

    def configs(self) -> Iterable[TrainingConfig]:
        """All that are free, lazily, in the order of the space."""
        return (config for _, config in self.keyed())

    def keyed(self) -> Iterable[tuple[str, TrainingConfig]]:
        """As :meth:`configs`, each with its key."""
        return ((key, made) for key, made in self.space.keyed() if self.allows_key(key, made))

    def exhausted(self) -> Exhausted:
        """The answer when none is left."""
        tried = sum(1 for key, _ in self.space.keyed() if key in self.stored)
        left_out = self.space.size - tried
        tail = f"; {left_out} more certainly do not fit" if left_out else ""
        return Exhausted(reason=f"every configuration that can be tried has been tried ({tried}{tail})")


@dataclass(frozen=True, kw_only=True)
class OptunaProposer:
    """Asks an Optuna sampler on an in-memory study made of our rows, and never takes a repetition for an answer.

    Attributes:
        make_sampler: Makes the sampler from a seed and the number of finished trials.
        trial_attributes: What else Optuna's own bookkeeping needs on the rebuilt trial number n.
    """

    task: SearchTask
    make_sampler: Callable[[int, int], BaseSampler]
    trial_attributes: Callable[[int], dict[str, Any]] = field(default=lambda _number: {})

    def propose(self, history: Sequence[TrialRecord], running: Sequence[TrialRecord]) -> TrainingConfig | Exhausted:
        """See :class:`Proposer`."""
        free = Free(self.task, history, running)
        if next(iter(free.configs()), None) is None:
            return free.exhausted()
        study = self._study(history, running)
        return self._ask(study, free)

    def _ask(self, study: Study, free: Free) -> TrainingConfig | Exhausted:
        params: Params = {}
        for _ in range(ASKS if self._distributions else 1):
            trial = study.ask(dict(self._distributions))
            params = self._from_optuna(trial.params)
            config = self._config(params)
            if config is not None and free.allows(config):
                return config
            self._answer(study, trial, None if config is None else free.stored.get(config_key(config)))
        return nearest(params, free) or free.exhausted()

    def _answer(self, study: Study, trial: Trial, stored: TrialRecord | None) -> None:
        """Tells what is known already; a combination that cannot be, or cannot fit, is told as a misfit."""
        if stored is not None and stored.outcome is None:
            study.tell(trial, state=_state("FAIL"))
            return
        answer = self._told(stored) if stored is not None else told("device_oom", None, None, self._limit)
        if answer.values is None:
            study.tell(trial, state=_state("FAIL"))
            return
        trial.set_constraint(CONSTRAINT, 1.0 if answer.fits is None else answer.fits)
        study.tell(trial, list(answer.values))

    def _study(self, history: Sequence[TrialRecord], running: Sequence[TrialRecord]) -> Study:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        told_of = (*heard(history, self.task.limit_bytes), *running)
        sampler = self.make_sampler(self.task.seed + len(history) + len(running), len(history))
        study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
        params = (self.task.space.params(TrainingConfig.from_mapping(each.config)) for each in told_of)
        known = ((each, values) for each, values in zip(told_of, params, strict=True) if values is not None)
        for number, (trial, values) in enumerate(known):
            self._add(study, trial, values, number)
        return study

    def _add(self, study: Study, trial: TrialRecord, params: Params, number: int) -> None:
        import optuna

        answer = None if trial.outcome is None else self._told(trial)
        state = "RUNNING" if answer is None else answer.state
        values = None if answer is None else answer.values
        fits = None if answer is None else answer.fits
        study.add_trial(
            optuna.create_trial(
                state=_state(state),
                values=None if values is None else list(values),
                params=self._to_optuna(params),
                distributions=dict(self._distributions),
                constraints=None if fits is None else {CONSTRAINT: fits},
                system_attrs=self.trial_attributes(number),
            )
        )

    def _told(self, trial: TrialRecord) -> Told:
        return told(trial.outcome or "infra", trial.throughput, trial.peak_memory_bytes, self._limit)

    @property
    def _limit(self) -> int | None:
        return self.task.limit_bytes

    def _config(self, params: Params) -> TrainingConfig | None:
        try:
            return self.task.space.config(params)
        except ValueError:
            return None

    @cached_property
    def _distributions(self) -> Mapping[str, BaseDistribution]:
        """Integers by their rank among the legal values (1, 2, 64 are three steps), everything else categorical."""
        from optuna.distributions import CategoricalDistribution, IntDistribution

        return {
            name: IntDistribution(0, len(values) - 1)
            if knob(name).kind == "integer"
            else CategoricalDistribution(values)
            for name, values in self.task.space.values.items()
            if len(values) > 1
        }

    def _to_optuna(self, params: Params) -> dict[str, Any]:
        values = self.task.space.values
        return {
            name: values[name].index(params[name]) if knob(name).kind == "integer" else params[name]
            for name in self._distributions
        }

    def _from_optuna(self, params: Mapping[str, Any]) -> Params:
        made: dict[str, KnobValue] = {}
        for name, values in self.task.space.values.items():
            by_rank = name in params and knob(name).kind == "integer"
            made[name] = values[params[name]] if by_rank else params.get(name, values[0])
        return made


def heard(history: Sequence[TrialRecord], limit_bytes: int | None) -> Sequence[TrialRecord]:
    """What a sampler hears of: the :data:`LATEST` trials, and the front so far."""
    if len(history) <= LATEST:
        return history
    front = {each.id for each in pareto_front(history[:-LATEST], limit_bytes)}
    return [*(each for each in history[:-LATEST] if each.id in front), *history[-LATEST:]]


def nearest(params: Params, free: Free) -> TrainingConfig | None:
    """The free configuration that differs least from the wanted values; None when none is left.

    A knob that is not an integer counts 1 when it differs, an integer its distance in ranks over the number of values.
    Spaces above :data:`NEIGHBOURS` free configurations are looked at in part.
    """

    def distance(config: TrainingConfig) -> float:
        values = config.knobs()
        return sum(_apart(free.space, name, values[name], wanted) for name, wanted in params.items())

    return min(chain(_beside(params, free), islice(free.configs(), NEIGHBOURS)), key=distance, default=None)


def _beside(params: Params, free: Free) -> Iterator[TrainingConfig]:
    """Free configurations one change away: for spaces too large to look through."""
    try:
        middle = free.space.config(params)
    except ValueError:
        return iter(())
    return (each.config for each in changes(free.space, middle) if free.allows(each.config))


def _apart(space: Space, name: str, value: KnobValue, wanted: KnobValue) -> float:
    if value == wanted:
        return 0.0
    choices = space.values[name]
    if knob(name).kind != "integer" or value not in choices or wanted not in choices:
        return 1.0
    return abs(choices.index(value) - choices.index(wanted)) / len(choices)


def _state(name: str) -> Any:
    from optuna.trial import TrialState

    return TrialState[name]
