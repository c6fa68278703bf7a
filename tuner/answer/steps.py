"""The way from the baseline to the winner through measured trials, with as few joint steps as possible. Pure.

Every measured trial whose knobs lie between the baseline's and the winner's is a place to stop at. Each step moves
knobs towards the winner and never back; of all ways the one is taken that leaves the fewest knobs changed together (a
joint change cannot be split without a model), then the one whose joint changes are the smallest part of the way, then
the one with the fewest steps, then the one that is known best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from objectives.config import KnobValue, TrainingConfig

MOST_PLACES = 300
"""Measured trials looked at; of more, those with the fewest values between the two ends' own are taken."""

Cost = tuple[int, float, int, float]


@dataclass(frozen=True, kw_only=True)
class Place:
    """A measured trial.

    Attributes:
        log_throughput: Natural logarithm of its units per second, at the level of the study's answer.
        standard_error: Of that logarithm.
        peak_memory_bytes: None when it was not measured.
    """

    trial_id: int
    number: int
    config: TrainingConfig
    log_throughput: float
    standard_error: float = 0.0
    peak_memory_bytes: int | None = None


def changed(a: TrainingConfig, b: TrainingConfig) -> dict[str, tuple[KnobValue, KnobValue]]:
    """The knobs that differ, each with both values. Accumulation follows from the others and is no change."""
    before, after = a.knobs(), b.knobs()
    return {name: (before[name], after[name]) for name in before if before[name] != after[name]}


def way(baseline: Place, winner: Place, others: Sequence[Place]) -> list[Place]:
    """The places to stop at, baseline first, winner last.

    Args:
        baseline: Where it starts.
        winner: Where it ends.
        others: Further measured trials; those that do not lie between the two are left out.
    """
    knobs = changed(baseline.config, winner.config)
    between = [(place, at) for place in others if (at := _progress(place.config, baseline.config, knobs)) is not None]
    between = [(place, at) for place, at in between if 0 < sum(at) < len(at)]
    between = sorted(between, key=lambda each: (sum(0 < part < 1 for part in each[1]), each[0].number))[:MOST_PLACES]
    ordered = [(baseline, (0.0,) * len(knobs)), *sorted(between, key=lambda each: sum(each[1]))]
    return _cheapest([*ordered, (winner, (1.0,) * len(knobs))])


def _cheapest(ordered: Sequence[tuple[Place, tuple[float, ...]]]) -> list[Place]:
    """Shortest path in the order of progress: every step goes forward, so one sweep is enough."""
    costs: list[Cost] = [(0, 0.0, 0, 0.0)]
    before: list[int] = [-1]
    for here, (place, at) in enumerate(ordered[1:], start=1):
        reached = [
            (_added(costs[index], start, at, place.standard_error**2), index)
            for index, (_, start) in enumerate(ordered[:here])
            if start != at and all(a <= b for a, b in zip(start, at, strict=True))
        ]
        best, index = min(reached)
        costs.append(best)
        before.append(index)
    return [ordered[index][0] for index in _back(before)]


def _back(before: Sequence[int]) -> list[int]:
    chain = [len(before) - 1]
    while before[chain[-1]] >= 0:
        chain.append(before[chain[-1]])
    return chain[::-1]


def _added(cost: Cost, start: tuple[float, ...], end: tuple[float, ...], variance: float) -> Cost:
    moved = [b - a for a, b in zip(start, end, strict=True) if a != b]
    joint = moved if len(moved) > 1 else []
    return cost[0] + len(joint), round(cost[1] + sum(joint), 9), cost[2] + 1, cost[3] + variance


def _progress(
    config: TrainingConfig, baseline: TrainingConfig, knobs: Mapping[str, tuple[KnobValue, KnobValue]]
) -> tuple[float, ...] | None:
    """How far each changed knob is on its way, 0 to 1; None where a knob has a value that is not on the way."""
    values = config.knobs()
    if any(values[name] != value for name, value in baseline.knobs().items() if name not in knobs):
        return None
    parts = [_part(values[name], start, end) for name, (start, end) in knobs.items()]
    known = tuple(part for part in parts if part is not None)
    return known if len(known) == len(parts) else None


def _part(value: KnobValue, start: KnobValue, end: KnobValue) -> float | None:
    if value in (start, end):
        return float(value == end)
    numbers = [each for each in (value, start, end) if isinstance(each, int) and not isinstance(each, bool)]
    if len(numbers) < 3:
        return None
    here, first, last = numbers
    share = (here - first) / (last - first)
    return share if 0 < share < 1 else None
