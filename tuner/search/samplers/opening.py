"""The first proposals: from the best so far, one knob at a time, instead of random ones. Pure.

Precision, checkpointing, attention and the like act nearly multiplicatively on throughput, so what a change gained
beside one configuration it mostly gains beside another. The opening changes one knob of the best feasible trial,
untested changes first in the order of their usual effect, then those whose mean gain so far is worth a trial; it is
over when no such change is left, and the sampler takes the whole space from there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from objectives.config import KnobValue, TrainingConfig
from objectives.knobs import knob
from storage.records import TrialRecord
from tuner.search.front import best_trial
from tuner.search.memory_order import frugality
from tuner.search.space import Params, Space

USUAL_EFFECT: tuple[str, ...] = (
    "precision",
    "activation_checkpointing",
    "batching",
    "compile",
    "attention",
    "loader_workers",
    "tokens",
    "memory_format",
    "loss",
    "optimizer",
    "allocator",
    "prefetch_factor",
    "pin_memory",
    "micro_batch_size",
)
"""Knobs by how much they usually move throughput, most first; the micro-batch last, for it takes what memory the others
leave (in the larger model of ``auto``'s docstring that brought the trials to within 1 % from 60 to 19)."""

LONGEST = 60
"""With more finished trials the opening is over in any case (it compares all pairs of them)."""

WORTH_A_TRIAL = math.log(1.01)
"""A tested change is tried again beside another configuration when its mean gain was at least 1 %."""

Change = tuple[str, KnobValue, KnobValue]
"""Knob, value before, value after."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One knob of the best trial changed."""

    change: Change
    config: TrainingConfig


def opening(
    space: Space,
    history: Sequence[TrialRecord],
    allows: Callable[[TrainingConfig], bool],
    limit_bytes: int | None,
) -> TrainingConfig | None:
    """The next configuration of the opening; None when it is over.

    Without any feasible trial yet it is the allowed configuration that usually needs least memory.
    """
    if len(history) > LONGEST:
        return None
    best = best_trial(history, limit_bytes)
    if best is None:
        failed = any(trial.outcome == "device_oom" for trial in history)
        return min(filter(allows, space.configs()), key=frugality, default=None) if failed else None
    gains = mean_gains(space, history)
    candidates = [each for each in changes(space, TrainingConfig.from_mapping(best.config)) if allows(each.config)]
    untested = next((each.config for each in candidates if each.change not in gains), None)
    if untested is not None:
        return untested
    worth = [each for each in candidates if gains[each.change] >= WORTH_A_TRIAL]
    return max(worth, key=lambda each: gains[each.change]).config if worth else None


def changes(space: Space, config: TrainingConfig) -> Iterator[Candidate]:
    """Every legal change of one knob, in the order of the usual effect. Integers move one step or a factor two."""
    values = config.knobs()
    for name in sorted(space.values, key=_usual_effect):
        for value in _other_values(space, name, values[name]):
            made = _changed(space, values, name, value)
            if made is not None:
                yield Candidate(change=(name, values[name], value), config=made)


def mean_gains(space: Space, history: Sequence[TrialRecord]) -> Mapping[Change, float]:
    """Mean log ratio of throughput over pairs of trials that differ in exactly one knob, both ways.

    A partner that failed for good (out of memory, numerical, unsupported, timeout) counts as no gain.
    """
    rows = [(TrainingConfig.from_mapping(trial.config).knobs(), _speed(trial)) for trial in history]
    found: dict[Change, list[float]] = defaultdict(list)
    for before, speed in rows:
        for after, other in rows:
            different = [name for name in space.values if before[name] != after[name]]
            if len(different) != 1 or speed is None or other is None or not speed:
                continue
            name = different[0]
            found[name, before[name], after[name]].append(math.log(other / speed) if other else -1.0)
    return {change: sum(ratios) / len(ratios) for change, ratios in found.items()}


def _usual_effect(name: str) -> int:
    return USUAL_EFFECT.index(name) if name in USUAL_EFFECT else len(USUAL_EFFECT)


def _speed(trial: TrialRecord) -> float | None:
    if trial.outcome in ("device_oom", "numerical", "unsupported", "timeout"):
        return 0.0
    return trial.throughput if trial.outcome == "completed" else None


def _other_values(space: Space, name: str, value: KnobValue) -> list[KnobValue]:
    choices = space.values[name]
    if knob(name).kind != "integer":
        return [other for other in choices if other != value]
    larger = sorted(int(each) for each in choices if int(each) > int(value))
    smaller = sorted((int(each) for each in choices if int(each) < int(value)), reverse=True)
    steps = [_nearest(larger, 2 * int(value)), *larger[:1], _nearest(smaller, int(value) // 2), *smaller[:1]]
    return list(dict.fromkeys(each for each in steps if each is not None))


def _nearest(numbers: list[int], wanted: int) -> int | None:
    return min(numbers, key=lambda number: abs(number - wanted), default=None)


def _changed(space: Space, values: Params, name: str, value: KnobValue) -> TrainingConfig | None:
    params = {each: values[each] for each in space.values} | {name: value}
    if any(params[each] not in space.values[each] for each in params):
        params = {
            each: params[each] if params[each] in choices else choices[0] for each, choices in space.values.items()
        }
    try:
        return space.config(params)
    except ValueError:
        return None
