"""An Optuna search space as candidates of the planner, and a study's trials as what it has seen."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from objectives.config import KnobValue
from tuner.search.planner.observation import Seen

if TYPE_CHECKING:
    from tuner.search.planner.candidates import Candidates

MOST_CANDIDATES = 20_000
"""A larger space is looked at through so many random configurations."""
STEPS = 9
"""Values that a continuous parameter, or an integer with more than :data:`MOST_INTEGERS`, is searched through."""
MOST_INTEGERS = 64


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One parameter: its values, and what stands for them in the planner.

    Attributes:
        values: As Optuna takes them.
        codes: As the planner takes them: themselves where they are knob values, their ranks otherwise.
    """

    values: tuple[Any, ...]
    codes: tuple[KnobValue, ...]

    @classmethod
    def of(cls, distribution: BaseDistribution) -> Axis:
        """The axis of a distribution.

        Raises:
            ValueError: Optuna has a kind of distribution that is not known here.
        """
        if isinstance(distribution, CategoricalDistribution):
            choices = tuple(distribution.choices)
            named = (
                each if isinstance(each, (str, int)) else f"choice {rank}" for rank, each in enumerate(choices)
            )  # True is an int as well
            return cls(values=choices, codes=tuple(named))
        if isinstance(distribution, IntDistribution):
            whole = _integers(distribution)
            return cls(values=whole, codes=whole)
        if isinstance(distribution, FloatDistribution):
            steps = _floats(distribution)
            return cls(values=steps, codes=tuple(range(len(steps))))
        raise ValueError(f"TightfitSampler knows categorical, integer and float parameters, not {distribution!r}")

    def code(self, value: Any) -> KnobValue:
        """What stands for a value; for one between two steps, the nearest step's."""
        if value in self.values:
            return self.codes[self.values.index(value)]
        nearest = min(range(len(self.values)), key=lambda rank: abs(self.values[rank] - value))
        return self.codes[nearest]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A search space in steps.

    Attributes:
        axes: By parameter.
        seed: Of the random part of a space too large to list.
    """

    axes: Mapping[str, Axis]
    seed: int = 0

    @classmethod
    def of(cls, search_space: Mapping[str, BaseDistribution], seed: int) -> Grid:
        """The grid of an Optuna search space."""
        return cls(axes={name: Axis.of(each) for name, each in search_space.items()}, seed=seed)

    @cached_property
    def ranks(self) -> tuple[tuple[int, ...], ...]:
        """The configurations, as the ranks of their values."""
        sizes = [range(len(axis.values)) for axis in self.axes.values()]
        if prod(len(size) for size in sizes) <= MOST_CANDIDATES:
            return tuple(product(*sizes))
        return tuple(dict.fromkeys(self._random([len(size) for size in sizes])))

    def _random(self, sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
        chance = random.Random(self.seed)
        for _ in range(MOST_CANDIDATES):
            yield tuple(chance.randrange(size) for size in sizes)

    @cached_property
    def candidates(self) -> Candidates:
        """The same for the planner."""
        from tuner.search.planner.candidates import Candidates

        axes = list(self.axes.items())
        return Candidates.of(
            [{name: axis.codes[rank] for (name, axis), rank in zip(axes, ranks, strict=True)} for ranks in self.ranks]
        )

    def params(self, place: int) -> dict[str, Any]:
        """One configuration as Optuna takes it."""
        axes = self.axes.items()
        return {name: axis.values[rank] for (name, axis), rank in zip(axes, self.ranks[place], strict=True)}

    def config(self, params: Mapping[str, Any]) -> dict[str, KnobValue] | None:
        """A trial's configuration as the planner takes it; None when it lacks a parameter of the space."""
        if any(name not in params for name in self.axes):
            return None
        return {name: axis.code(params[name]) for name, axis in self.axes.items()}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a study's objectives are to be read.

    Attributes:
        higher_is_better: Whether the first objective is a throughput (else it is a time per unit).
        has_peak: Whether a second one is the peak memory in bytes.
    """

    higher_is_better: bool
    has_peak: bool

    def seen(
        self,
        trial: FrozenTrial,
        config: Mapping[str, KnobValue],
        state: TrialState,
        values: Sequence[float] | None,
    ) -> Seen:
        """One ended trial.

        User attributes ``outcome``, ``peak_memory_bytes``, ``seconds`` and ``data_stall_share``, where the objective
        has set them, say more; without an outcome, a violated constraint is an out-of-memory.
        """
        said = trial.user_attrs
        outcome = said.get("outcome") or self._outcome(trial, state, values)
        peak = said.get("peak_memory_bytes") or (values[1] if self.has_peak and values and len(values) > 1 else None)
        return Seen(
            config=config,
            outcome=str(outcome),
            throughput=self._throughput(trial, state, values),
            is_bound=outcome == "pruned",
            peak_memory_bytes=None if peak is None or outcome == "device_oom" else round(peak),
            seconds=float(said.get("seconds") or _seconds(trial)),
            data_stall_share=said.get("data_stall_share"),
        )

    def _outcome(self, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> str:
        if state == TrialState.PRUNED:
            return "pruned"
        if state != TrialState.COMPLETE:
            return "crashed"
        violated = any(value > 0 for value in trial.constraints.values())
        works = bool(values) and self._rate(values[0] if values else 0.0) is not None
        if violated:
            return "device_oom"
        return "completed" if works else "unsupported"

    def _throughput(self, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> float | None:
        if state == TrialState.PRUNED and trial.intermediate_values:
            return self._rate(trial.intermediate_values[max(trial.intermediate_values)])
        return self._rate(values[0]) if values and state == TrialState.COMPLETE else None

    def _rate(self, value: float) -> float | None:
        if not 0 < value < float("inf"):
            return None
        return value if self.higher_is_better else 1 / value


def _seconds(trial: FrozenTrial) -> float:
    if trial.datetime_start is None or trial.datetime_complete is None:
        return 0.0
    return max((trial.datetime_complete - trial.datetime_start).total_seconds(), 1e-3)


def _integers(distribution: IntDistribution) -> tuple[int, ...]:
    whole = range(distribution.low, distribution.high + 1, distribution.step)
    if len(whole) <= MOST_INTEGERS:
        return tuple(whole)
    if not distribution.log:
        return tuple(dict.fromkeys(whole[round(share * (len(whole) - 1) / (STEPS - 1))] for share in range(STEPS)))
    return tuple(dict.fromkeys(round(value) for value in _spaced(distribution.low, distribution.high, log=True)))


def _floats(distribution: FloatDistribution) -> tuple[float, ...]:
    if distribution.step is not None:
        count = int((distribution.high - distribution.low) / distribution.step + 1e-9) + 1
        kept = dict.fromkeys(round(share * (count - 1) / (STEPS - 1)) for share in range(STEPS))
        chosen = range(count) if count <= MOST_INTEGERS else list(kept)
        return tuple(distribution.low + number * distribution.step for number in chosen)
    return tuple(dict.fromkeys(_spaced(distribution.low, distribution.high, log=distribution.log)))


def _spaced(low: float, high: float, *, log: bool) -> list[float]:
    shares = [number / (STEPS - 1) for number in range(STEPS)]
    made = [low * (high / low) ** share if log else low + (high - low) * share for share in shares]
    return [min(max(value, low), high) for value in made]
