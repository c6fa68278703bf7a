"""Which run a table needs next: one pass over all, repeats where they decide, real runs around each cap. Pure.

A recorder asks :func:`next_run` with everything done so far, makes that run, keeps it and asks again. Nothing else is
remembered, so a recording that was killed goes on with the run it was making.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean, median

from benchmarks.recording.cuts import choose_caps, next_at_edge

REPEATS = 5
"""Further runs of a configuration that decides, at least."""
NEAR_BEST = 0.9
"""A configuration decides when it has at least this share of the best throughput, under any of the caps."""
BASELINE_EVERY = 8
"""Runs between two of the baseline, which shows whether the machine drifts."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """One run that has ended and says something about its configuration.

    Attributes:
        key: Of the configuration.
        cap_bytes: The cap it ran under; None in the uncut grid.
        outcome: ``completed``, ``device_oom`` or another.
        throughput: Units per second; None where nothing was measured.
        peak_memory_bytes: None where nothing was measured.
    """

    key: str
    cap_bytes: int | None = None
    outcome: str = "completed"
    throughput: float | None = None
    peak_memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Todo:
    """The next run."""

    key: str
    cap_bytes: int | None = None
    repeat: bool = False
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A grid as far as it has been recorded.

    Attributes:
        keys: Every configuration in the order of the pass, the baseline first.
        done: Runs in the order in which they were made.
        caps: Caps in bytes, ascending; None chooses them from the peaks of the pass.
    """

    keys: Sequence[str]
    done: Sequence[Done]
    caps: Sequence[int] | None = None
    repeats: int = REPEATS

    @cached_property
    def uncut(self) -> Mapping[str, list[Done]]:
        """The runs of the uncut grid by configuration."""
        found: dict[str, list[Done]] = {key: [] for key in self.keys}
        for run in self.done:
            if run.cap_bytes is None and run.key in found:
                found[run.key].append(run)
        return found

    @cached_property
    def missing(self) -> list[str]:
        """Configurations without any run, in the order of the pass."""
        return [key for key in self.keys if not self.uncut[key]]

    @cached_property
    def first_peaks(self) -> Mapping[str, int]:
        """Peak memory of each configuration's first run; without those that did not complete."""
        firsts = {key: runs[0] for key, runs in self.uncut.items() if runs}
        return {key: run.peak_memory_bytes for key, run in firsts.items() if run.peak_memory_bytes is not None}

    @cached_property
    def memory_caps(self) -> tuple[int, ...]:
        """The caps, ascending; known when the pass is complete."""
        if self.caps is not None:
            return tuple(self.caps)
        peaks = self.first_peaks
        return choose_caps(list(peaks.values()), must_fit=peaks.get(self.keys[0], 0))

    @cached_property
    def means(self) -> Mapping[str, float]:
        """Geometric mean of the throughput of each configuration that completed."""
        measured = {key: [math.log(run.throughput) for run in runs if run.throughput] for key, runs in self._sound()}
        return {key: math.exp(fmean(logs)) for key, logs in measured.items() if logs}

    def _sound(self) -> Iterable[tuple[str, list[Done]]]:
        return ((key, runs) for key, runs in self.uncut.items() if runs and runs[0].outcome == "completed")

    def capped(self, cap: int) -> Mapping[str, str]:
        """Outcome by configuration of the real runs under a cap."""
        return {run.key: run.outcome for run in self.done if run.cap_bytes == cap}


def next_run(plan: Plan) -> Todo | None:
    """The next run; None when the table is complete."""
    return _of_the_pass(plan) or _of_the_repeats(plan) or _of_the_caps(plan)


def decisive(plan: Plan) -> list[str]:
    """Configurations that decide, in the order of the pass: near the best under any cap, on the front, the baseline."""
    means, peaks = plan.means, plan.first_peaks
    chosen = set(front(means, peaks)) | ({plan.keys[0]} & set(means))
    for cap in (math.inf, *plan.memory_caps):
        fitting = {key: mean for key, mean in means.items() if peaks.get(key, math.inf) <= cap}
        best = max(fitting.values(), default=0.0)
        chosen |= {key for key, mean in fitting.items() if mean >= NEAR_BEST * best}
    return [key for key in plan.keys if key in chosen]


def front(means: Mapping[str, float], peaks: Mapping[str, int]) -> list[str]:
    """Configurations that no other beats in throughput and peak, fastest first."""
    found: list[str] = []
    for key in sorted(means, key=lambda each: (-means[each], peaks[each])):
        if not found or peaks[key] < peaks[found[-1]]:
            found.append(key)
    return found


def _of_the_pass(plan: Plan) -> Todo | None:
    if not plan.missing:
        return None
    control = _baseline_due(plan)
    return control or Todo(key=plan.missing[0], why=f"pass: {len(plan.keys) - len(plan.missing) + 1}/{len(plan.keys)}")


def _baseline_due(plan: Plan) -> Todo | None:
    baseline, runs = plan.keys[0], [run.key for run in plan.done if run.cap_bytes is None]
    since = len(runs) - 1 - max((place for place, key in enumerate(runs) if key == baseline), default=len(runs))
    due = since >= BASELINE_EVERY and baseline in plan.means
    return Todo(key=baseline, repeat=True, why="the baseline, against drift") if due else None


def _of_the_repeats(plan: Plan) -> Todo | None:
    """One of those with the fewest runs: round after round, each in another order, so that drift falls on nobody."""
    short = {key: len(plan.uncut[key]) for key in decisive(plan) if len(plan.uncut[key]) <= plan.repeats}
    if not short:
        return None
    if (control := _baseline_due(plan)) is not None:
        return control
    turn = min(short.values())
    keys = [key for key, count in short.items() if count == turn]
    why = f"repeat {turn}/{plan.repeats}: {len(keys)} of {len(decisive(plan))} left in this round"
    return Todo(key=min(keys, key=lambda key: _shuffled(turn, key)), repeat=True, why=why)


def _shuffled(turn: int, key: str) -> str:
    return hashlib.sha256(f"{turn} {key}".encode()).hexdigest()


def _of_the_caps(plan: Plan) -> Todo | None:
    for cap in plan.memory_caps:
        key = next_at_edge(plan.first_peaks, cap, plan.capped(cap))
        if key is not None:
            return Todo(key=key, cap_bytes=cap, why=f"under the cap of {cap / 2**20:.0f} MiB")
    return None


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How far runs of one configuration differ, pooled over a table.

    Attributes:
        relative: Standard deviation between runs, relative; None without repeats.
        freedom: Degrees of freedom.
        median_runs: Runs of the configurations that have repeats, the median.
    """

    relative: float | None = None
    freedom: int = 0
    median_runs: float = field(default=0.0)

    @property
    def standard_error(self) -> float | None:
        """Relative standard error of the mean of a repeated configuration."""
        return None if self.relative is None else self.relative / math.sqrt(self.median_runs)


def noise(runs: Iterable[Sequence[float]]) -> Noise:
    """One variance of the logarithms, pooled over the throughputs of each configuration with at least two runs."""
    logs = [[math.log(value) for value in values] for values in runs if len(values) > 1]
    freedom = sum(len(values) - 1 for values in logs)
    if not freedom:
        return Noise()
    squares = sum((value - fmean(values)) ** 2 for values in logs for value in values)
    return Noise(relative=math.sqrt(squares / freedom), freedom=freedom, median_runs=median(map(len, logs)))
