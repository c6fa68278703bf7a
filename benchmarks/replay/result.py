"""What one replayed search came to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.replay.grid import Table
from benchmarks.replay.oracle import Halt, Observation, Replay
from benchmarks.replay.row import Row

NEVER = 2.0
"""A search that never runs anything within the tolerance is charged so many times the whole table."""

ALLOWANCE = 3
"""Runs of middling cost above the floor that still count as near it."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One search.

    Attributes:
        seconds_to_hit: Device-seconds until the first completed run of a row within the tolerance, the baseline's
            included; :data:`NEVER` tables when there was none.
        hit: Whether there was one.
        seconds_to_stop: Device-seconds until the strategy's own end.
        regret_at_stop: Share of the best throughput that its answer gives away; 1 for none, or one over the limit.
        over_limit: Whether it answered with something that does not fit.
        oom_launches: Runs out of memory until its own end.
        asks: Runs until its own end.
        hypervolume: Area its runs dominate (true throughput up, peak down), as a share of the whole table's.
        floor_seconds: Baseline plus best row: nothing can be quicker.
        allowance_seconds: Cost of :data:`ALLOWANCE` runs of middling cost.
        curve: (device-seconds, regret of the best row run so far), a point a run.
    """

    seconds_to_hit: float
    hit: bool
    seconds_to_stop: float
    regret_at_stop: float
    over_limit: bool
    oom_launches: int
    asks: int
    hypervolume: float
    floor_seconds: float
    allowance_seconds: float
    curve: tuple[tuple[float, float], ...]

    @property
    def near_floor(self) -> bool:
        """Whether it hit within the allowance of the floor."""
        return self.hit and self.seconds_to_hit <= self.floor_seconds + self.allowance_seconds + 1e-9


def result_of(replay: Replay) -> Result:
    """Judges a search that has ended."""
    table = replay.recorded
    halt = replay.halt or Halt(answer=replay.best_seen(), seconds=replay.clock, asks=len(replay.asks))
    until = replay.asks[: halt.asks]
    found = replay.hit_seconds
    return Result(
        seconds_to_hit=NEVER * table.seconds if found is None else found,
        hit=found is not None,
        seconds_to_stop=halt.seconds,
        regret_at_stop=table.regret(halt.answer),
        over_limit=halt.answer is not None and not table.fits(halt.answer),
        oom_launches=sum(seen.outcome == "device_oom" for seen in until),
        asks=halt.asks,
        hypervolume=_share(table, [seen.row for seen in until if seen.completed]),
        floor_seconds=_floor(replay),
        allowance_seconds=ALLOWANCE * _middling(table),
        curve=_curve(table, replay.asks),
    )


def _floor(replay: Replay) -> float:
    table = replay.recorded
    hit_at_once = table.is_hit(replay.baseline)
    return table.cost(replay.baseline) + (0.0 if hit_at_once else table.cost(table.best))


def _middling(table: Table) -> float:
    return median(table.cost(row) for row in table.rows)


def _curve(table: Table, asks: Sequence[Observation]) -> tuple[tuple[float, float], ...]:
    points, lowest = [], 1.0
    for seen in asks:
        if seen.completed:
            lowest = min(lowest, table.regret(seen.row))
        points.append((seen.started + seen.seconds, lowest))
    return tuple(points)


def _share(table: Table, rows: Sequence[Row]) -> float:
    ceiling = table.limit_bytes or 2 * max((row.peak_bytes or 0 for row in table.feasible), default=0)
    whole = hypervolume(table.feasible, ceiling)
    return hypervolume(rows, ceiling) / whole if whole else 0.0


def hypervolume(rows: Sequence[Row], ceiling_bytes: int) -> float:
    """Area the rows dominate, up to zero throughput and the ceiling, in units per second x bytes.

    Rows without a measured peak dominate nothing.
    """
    area, ceiling = 0.0, float(ceiling_bytes)
    measured = [row for row in rows if row.peak_bytes is not None]
    for row in sorted(measured, key=lambda row: -(row.throughput or 0.0)):
        area += (row.throughput or 0.0) * max(0.0, ceiling - (row.peak_bytes or 0))
        ceiling = min(ceiling, float(row.peak_bytes or 0))
    return area
