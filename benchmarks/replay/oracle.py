"""Answers what a run of a configuration would have shown, and charges what it would have cost."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from benchmarks.replay.grid import Table
from benchmarks.replay.row import Row, key_of

MOST_ASKS = 20
"""A strategy that asks so many times the number of rows goes round in circles, and is ended."""

Watch = Callable[[Sequence[float], int | None], float | None]
"""Step seconds so far and the run's peak in bytes -> an upper bound of its throughput when it is to be stopped."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One run as a search saw it.

    Attributes:
        number: Of the run, from 0, which is the baseline's.
        outcome: ``device_oom`` also for what completed over the limit; ``pruned`` for a run that the search stopped.
        throughput: Units per second as this run read them; an upper bound when ``pruned``; None for a failure.
        peak_bytes: None for a failure, or where the table has none.
        seconds: Charged.
        started: Device-seconds charged before it.
        step_seconds: As far as it ran.
    """

    number: int
    row: Row
    outcome: str
    throughput: float | None
    peak_bytes: int | None
    seconds: float
    started: float
    step_seconds: tuple[float, ...] = ()

    @property
    def completed(self) -> bool:
        """Whether it measured the whole window."""
        return self.outcome == "completed"


@dataclass(frozen=True, kw_only=True)
class Halt:
    """What a strategy had when it stopped by itself.

    Attributes:
        answer: Its winner; None when it found nothing.
        seconds: Device-seconds charged until then.
        asks: Runs until then.
    """

    answer: Row | None
    seconds: float
    asks: int


class Replay:
    """One search of one strategy over one table with one seed.

    The baseline has been run (and charged) before the strategy starts. Row order and noise are the seed's; so is the
    baseline: the recorded one for even seeds, for odd seeds one drawn from what fits and is no hit. ``others`` are the
    tables of other grids on the same device: where an earlier study may come from.
    """

    def __init__(self, table: Table, seed: int, others: Sequence[Table] = ()) -> None:
        self.seed, self.others = seed, tuple(others)
        self.recorded = table
        self._noise = random.Random(f"noise {seed}")
        self.table = replace(table, rows=_shuffled(table.rows, seed))
        self.baseline = _baseline(table, seed)
        self.asks: list[Observation] = []
        self.clock = 0.0
        self.hit_seconds: float | None = None
        self.halt: Halt | None = None
        self.first = self.ask(self.baseline)

    def ask(self, row: Row, watch: Watch | None = None, *, steps: int | None = None) -> Observation:
        """Runs a configuration, again if it ran before: every run is charged.

        Args:
            row: Of the table.
            watch: Looks at the run after each step and may stop it; needs the row's ``step_seconds``.
            steps: The strategy's own trial is so many steps long: it pays no more, and counts as completed.
        """
        whole = self._whole(row)
        bound = None if watch is None or not whole.completed else _watched(whole, watch)
        seen = _shortened(whole, steps) if bound is None else _stopped(whole, *bound)
        self.asks.append(seen)
        self.clock += seen.seconds
        if seen.completed and self.hit_seconds is None and self.table.is_hit(row):
            self.hit_seconds = self.clock
        return seen

    def stop(self, answer: Row | None) -> None:
        """The strategy's own end. It may go on asking: a later first hit still counts."""
        if self.halt is None:
            self.halt = Halt(answer=answer, seconds=self.clock, asks=len(self.asks))

    @property
    def going(self) -> bool:
        """Whether anything could still change: False once it has stopped and hit, or runs in circles."""
        done = self.halt is not None and self.hit_seconds is not None
        return not done and len(self.asks) < MOST_ASKS * len(self.table.rows)

    @cached_property
    def limit_bytes(self) -> int | None:
        """What a peak may be at most."""
        return self.table.limit_bytes

    def row(self, config: dict[str, object]) -> Row | None:
        """The row of a configuration; None when the table has none."""
        return self.table.by_key.get(key_of(config))

    def best_seen(self) -> Row | None:
        """The fastest feasible row by the mean of what was read; None when nothing fitted."""
        reads: dict[str, list[float]] = {}
        for seen in self.asks:
            if seen.completed and seen.throughput is not None:
                reads.setdefault(seen.row.key, []).append(seen.throughput)
        means = {key: sum(mine) / len(mine) for key, mine in reads.items()}
        return self.table.by_key[max(means, key=means.__getitem__)] if means else None

    def _whole(self, row: Row) -> Observation:
        fits = self.table.fits(row)
        outcome = "completed" if fits else "device_oom" if row.over(self.limit_bytes) else row.outcome
        throughput, seconds = self._draw(row) if fits else (None, self.table.cost(row))
        return Observation(
            number=len(self.asks),
            row=row,
            outcome=outcome,
            throughput=throughput,
            peak_bytes=row.peak_bytes if fits else None,
            seconds=seconds,
            started=self.clock,
            step_seconds=_scaled(row, throughput) if fits else (),
        )

    def _draw(self, row: Row) -> tuple[float, float]:
        """Throughput and seconds of one run: one of its repeated runs, or its mean with the table's error."""
        if len(row.runs) > 1:
            run = self._noise.choice(row.runs)
            return run.throughput, row.seconds if run.seconds is None else run.seconds
        return (row.throughput or 0.0) * math.exp(self._noise.gauss(0.0, self.table.run_spread)), row.seconds


def _shuffled(rows: Sequence[Row], seed: int) -> tuple[Row, ...]:
    mixed = sorted(rows, key=lambda row: row.key)
    random.Random(f"order {seed}").shuffle(mixed)
    return tuple(mixed)


def _baseline(table: Table, seed: int) -> Row:
    worse = [row for row in table.feasible if not table.is_hit(row)]
    return table.baseline if seed % 2 == 0 or not worse else random.Random(f"baseline {seed}").choice(worse)


def _scaled(row: Row, throughput: float | None) -> tuple[float, ...]:
    """The recorded steps, at the speed that this run read."""
    recorded = row.runs[0].throughput if row.runs else row.throughput
    factor = recorded / throughput if recorded and throughput else 1.0
    return tuple(step * factor for step in row.step_seconds)


def _watched(whole: Observation, watch: Watch) -> tuple[int, float] | None:
    """After how many steps the run was stopped, and the bound; None when it ran to its end."""
    for count in range(1, len(whole.step_seconds)):
        bound = watch(whole.step_seconds[:count], whole.peak_bytes)
        if bound is not None:
            return count, bound
    return None


def _stopped(whole: Observation, count: int, bound: float) -> Observation:
    seen = _shortened(whole, count)
    return replace(seen, outcome="pruned", throughput=bound)


def _shortened(whole: Observation, count: int | None) -> Observation:
    """The run as if it had ended after so many steps.

    It is charged what the whole run cost less the steps that it did not make: setup, compilation and the steps used,
    and whatever else the recorded run spent before its window (worst case, warm-up).
    """
    if count is None or not whole.completed or count >= len(whole.step_seconds):
        return whole
    row, steps = whole.row, whole.step_seconds
    before = (row.setup_seconds or 0.0) + (row.compile_seconds or 0.0)
    window = min(sum(steps), max(0.0, whole.seconds - before))
    unused = window * sum(steps[count:]) / sum(steps)
    return replace(whole, seconds=whole.seconds - unused, step_seconds=steps[:count])
