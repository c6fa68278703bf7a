"""Configurations one change away, those first that usually move throughput most. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from objectives.config import KnobValue, TrainingConfig
from objectives.knobs import knob
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
"""Knobs by how much they usually move throughput, most first; the micro-batch last: it takes what memory is left."""

Change = tuple[str, KnobValue, KnobValue]
"""Knob, value before, value after."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One knob of the best trial changed."""

    change: Change
    config: TrainingConfig


def changes(space: Space, config: TrainingConfig) -> Iterator[Candidate]:
    """Every legal change of one knob, in the order of the usual effect. Integers move one step or a factor two."""
    values = config.knobs()
    for name in sorted(space.values, key=_usual_effect):
        for value in _other_values(space, name, values[name]):
            made = _changed(space, values, name, value)
            if made is not None:
                yield Candidate(change=(name, values[name], value), config=made)


def _usual_effect(name: str) -> int:
    return USUAL_EFFECT.index(name) if name in USUAL_EFFECT else len(USUAL_EFFECT)


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
