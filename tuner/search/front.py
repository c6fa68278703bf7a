"""The Pareto front of throughput (up) against peak memory (down). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from storage.records import TrialRecord


def is_feasible(trial: TrialRecord, limit_bytes: int | None) -> bool:
    """Whether the trial completed, has both metrics and stays inside the limit (None: no limit)."""
    if trial.outcome != "completed" or trial.throughput is None or trial.peak_memory_bytes is None:
        return False
    return limit_bytes is None or trial.peak_memory_bytes <= limit_bytes


def feasible(trials: Iterable[TrialRecord], limit_bytes: int | None) -> list[TrialRecord]:
    """The feasible trials in their own order."""
    return [trial for trial in trials if is_feasible(trial, limit_bytes)]


def best_trial(trials: Iterable[TrialRecord], limit_bytes: int | None) -> TrialRecord | None:
    """The feasible trial with the highest throughput (then the smaller peak, then the earlier); None without one."""
    return min(feasible(trials, limit_bytes), key=_fastest_first, default=None)


def pareto_front(trials: Iterable[TrialRecord], limit_bytes: int | None) -> list[TrialRecord]:
    """Feasible trials that no other beats in both metrics, fastest first. Of exact equals the earliest stays."""
    front: list[TrialRecord] = []
    for trial in sorted(feasible(trials, limit_bytes), key=_fastest_first):
        if not front or _peak(trial) < _peak(front[-1]):
            front.append(trial)
    return front


def knee(front: Sequence[TrialRecord]) -> TrialRecord | None:
    """The front's point farthest from the line between its ends, both axes scaled 0 to 1.

    Args:
        front: As :func:`pareto_front` returns it, fastest first.

    Returns:
        The fastest trial of a front of one or two points; None of an empty one.
    """
    if len(front) < 3:
        return front[0] if front else None
    fastest, smallest = front[0], front[-1]
    speed_span = _speed(fastest) - _speed(smallest)
    memory_span = _peak(fastest) - _peak(smallest)

    def distance(trial: TrialRecord) -> float:
        up = (_speed(trial) - _speed(smallest)) / speed_span
        return abs(up - (_peak(trial) - _peak(smallest)) / memory_span)

    return max(front, key=distance)


def hypervolume(front: Sequence[TrialRecord], limit_bytes: int) -> float:
    """Area the front dominates, up to zero throughput and the limit, in units per second x bytes."""
    area, ceiling = 0.0, float(limit_bytes)
    for trial in front:
        area += _speed(trial) * max(0.0, ceiling - _peak(trial))
        ceiling = min(ceiling, float(_peak(trial)))
    return area


def _fastest_first(trial: TrialRecord) -> tuple[float, int, int]:
    return (-_speed(trial), _peak(trial), trial.number)


def _speed(trial: TrialRecord) -> float:
    return trial.throughput or 0.0


def _peak(trial: TrialRecord) -> int:
    return trial.peak_memory_bytes or 0
