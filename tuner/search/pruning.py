"""Pruning inside a run by Pareto dominance: a sequential upper bound on its throughput against the front. Pure.

Once the worst case has shown a run's peak, its steps say ever better how fast it can be. Where even the optimistic end
is below the lower end of a front member that needs no more memory, the run is stopped, and the bound is kept.

The bound, in natural logarithms of throughput, for the true long-run value of the configuration (not of this window)::

    upper = seen + sqrt((t_slow * tau * sqrt(1 / share))^2 + (t_own * own error)^2)

``own error`` is the steps' own, their correlation paid for, with a prior for the first few. ``tau`` is the study's
between-run spread (:mod:`tuner.search.noise`): no estimator inside one window sees what stays for all of it. It belongs
to whole windows; a part that is ``share`` of one can be off by more, at most by ``sqrt(1 / share)`` times as much:
sums of a stationary series without negative correlation have superadditive variances. The bound is looked at
:data:`MOST_LOOKS` times at most, each at an equal part of :data:`ERROR_RATE` (Bonferroni: valid however looks depend on
each other), so it holds at all of them at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from objectives.measure.series import FEWEST_BATCHES, error_of_mean, inflation
from tuner.search.front import feasible
from tuner.search.noise import Spread, study_spread, t_quantile

if TYPE_CHECKING:
    from storage.records import TrialRecord
    from tuner.search.schedule import History

CAUSE = "dominated"
"""Why the child is asked to stop, and the cause of its outcome ``pruned``."""

ERROR_RATE = 0.01
"""Probability, per run and over all looks together, that the bound is below the configuration's true throughput."""

LOOKS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
"""Shares of a whole window after which the run is looked at."""

COLD_STEPS = (2.4, 1.5)
"""So many times longer than a later one the first and the second step may take (measured). While a run has no others,
they count as if they had been as much faster: long steps would be over before anything could be said."""

MOST_LOOKS = len(LOOKS) + len(COLD_STEPS)

FEWEST_MEASURED = 3
"""So many trials must have been measured before any run is stopped: before, nothing says how far runs scatter."""

PRIOR_STEP_SPREAD = {"cpu": 0.2, "cuda": 0.05}
"""Relative standard deviation of a step assumed before a run has shown its own (a contended CPU: 0.17 to 0.23)."""

PRIOR_STEP_FREEDOM = 4.0
"""That prior weighs as much as so many degrees of freedom."""

LEAST_CORRELATION = 0.3
"""A short series cannot show that its steps are independent: at least so much is assumed."""

NEVER_PRUNED = frozenset({"grid"})
"""Samplers whose tables must be complete."""


@dataclass(frozen=True, kw_only=True)
class FrontPoint:
    """A measured configuration that may dominate.

    Attributes:
        throughput_low: Lower end of its throughput's 95 % interval, units per second.
        peak_bytes: Its peak memory.
    """

    throughput_low: float
    peak_bytes: int


@dataclass(frozen=True, kw_only=True)
class Steps:
    """A run's optimizer steps so far, its warm-up left out; all three of the same length.

    Attributes:
        seconds: Of each whole optimizer step (composed where some of its micro-steps did not run).
        units: Real tokens or samples of each.
        elapsed: Seconds each really took; what a window's length is counted in.
    """

    seconds: Sequence[float]
    units: Sequence[float]
    elapsed: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class PruningRule:
    """What one run is held against; made once when it starts.

    Attributes:
        front: Measured feasible configurations; more than the front proper does no harm.
        spread: The study's between-run spread.
        window_seconds: Length of a whole window.
        device_kind: ``cpu`` or ``cuda``: which prior of the steps' scatter.
        error_rate: See :data:`ERROR_RATE`.
        unit: The throughput's unit, for what is stored of a stopped run.
    """

    front: Sequence[FrontPoint]
    spread: Spread
    window_seconds: float
    device_kind: str = "cpu"
    error_rate: float = ERROR_RATE
    unit: str | None = field(default=None, compare=False)

    def bound(self, steps: Steps, peak_bytes: int) -> float | None:
        """The run's upper bound, units per second, when it is dominated and this is a moment to look; else None."""
        rival = max((each.throughput_low for each in self.front if each.peak_bytes <= peak_bytes), default=0.0)
        if rival <= 0.0 or not is_look(steps.elapsed, self.window_seconds):
            return None
        upper = upper_bound(
            steps, self.spread, self.window_seconds, device_kind=self.device_kind,
            error_rate=self.error_rate / MOST_LOOKS,
        )  # fmt: skip
        return upper if upper < rival else None


def dominated(
    front: Sequence[tuple[float, int]],
    step_seconds: Sequence[float],
    units_per_step: float,
    peak_bytes: int,
    *,
    window_seconds: float,
    spread: Spread,
    device_kind: str = "cpu",
) -> float | None:
    """For replays: what the rule says after these steps, asked after each of them.

    Args:
        front: ``(lower end of the throughput's interval, peak in bytes)`` of measured feasible configurations.
        step_seconds: The run's steps so far, warm-up left out.
        units_per_step: Real units of each.
        peak_bytes: The run's own peak.
        window_seconds: Of a whole window, in the same seconds (for a table's row: the sum of all its steps).
        spread: The between-run spread known so far.
        device_kind: ``cpu`` or ``cuda``.

    Returns:
        None to go on, or the upper bound on the throughput of the run that is stopped now.
    """
    rule = PruningRule(
        front=[FrontPoint(throughput_low=low, peak_bytes=peak) for low, peak in front],
        spread=spread, window_seconds=window_seconds, device_kind=device_kind,
    )  # fmt: skip
    steps = Steps(seconds=step_seconds, units=[units_per_step] * len(step_seconds), elapsed=step_seconds)
    return rule.bound(steps, peak_bytes)


def rule_for(history: History, trial: TrialRecord, *, sampler: str, window_seconds: float) -> PruningRule | None:
    """The rule for a search run of this trial; None where it must not be stopped.

    Never stopped: the baseline, runs of the grid sampler, and any run while too few trials have been measured. Repeats
    and confirmations get no rule at all: who starts them does not ask for one.
    """
    if trial.number == 0 or sampler in NEVER_PRUNED:
        return None
    measured = [each for each in feasible(history.finished, history.limit_bytes) if each.id in history.intervals]
    clean = [each for each in measured if not history.intervals[each.id].disturbed]
    if len(clean) < FEWEST_MEASURED:
        return None
    return PruningRule(
        front=[
            FrontPoint(throughput_low=history.intervals[each.id].low, peak_bytes=each.peak_memory_bytes or 0)
            for each in clean
        ],
        spread=study_spread(history.runs, history.trials, history.device_kind, history.readings),
        window_seconds=window_seconds,
        device_kind=history.device_kind,
        unit=clean[0].throughput_unit,
    )  # fmt: skip


def is_look(elapsed: Sequence[float], window_seconds: float) -> bool:
    """Whether the last step passed one of the shares of the window after which the run is looked at."""
    if not elapsed or window_seconds <= 0.0:
        return False
    before, now = math.fsum(elapsed[:-1]) / window_seconds, math.fsum(elapsed) / window_seconds
    return any(before < look <= now for look in LOOKS)


def upper_bound(
    steps: Steps, spread: Spread, window_seconds: float, *, device_kind: str = "cpu", error_rate: float
) -> float:
    """Upper end of the configuration's long-run throughput, one-sided, units per second.

    Of the whole series and its later half the one that promises more counts: a warm-up that lasts longer than thought
    must not stop a run.
    """
    half = len(steps.seconds) // 2
    parts = [steps] if half < 2 else [steps, _later(steps, half)]
    return max(_upper(part, spread, window_seconds, device_kind, error_rate) for part in parts)


def _later(steps: Steps, start: int) -> Steps:
    return Steps(seconds=steps.seconds[start:], units=steps.units[start:], elapsed=steps.elapsed[start:])


def _upper(steps: Steps, spread: Spread, window_seconds: float, device_kind: str, error_rate: float) -> float:
    units, seconds = math.fsum(steps.units), math.fsum(steps.seconds)
    if units <= 0.0 or seconds <= 0.0:
        return math.inf
    share = min(math.fsum(steps.elapsed) / window_seconds, 1.0)
    two_sided = 1 - 2 * error_rate
    slow = t_quantile(spread.freedom, two_sided) * spread.relative / math.sqrt(share)
    error, freedom = _own_error(steps, PRIOR_STEP_SPREAD[device_kind])
    own = t_quantile(freedom, two_sided) * error
    return units / seconds * math.exp(min(math.hypot(slow, own), 100.0))


def _own_error(steps: Steps, prior: float) -> tuple[float, float]:
    """Relative standard error of the steps' mean rate, and its degrees of freedom.

    From 20 steps on their batch means alone; below, the variance is pooled with the prior's.
    """
    parts = _parts(steps)
    count = len(parts)
    if count >= FEWEST_BATCHES and (known := error_of_mean(parts)) is not None:
        return known
    factor = inflation(parts, at_least=LEAST_CORRELATION)
    freedom = PRIOR_STEP_FREEDOM + (count - 1) / factor
    squares = PRIOR_STEP_FREEDOM * prior**2 + math.fsum(part**2 for part in parts) / factor
    return math.sqrt(squares / freedom * factor / count), freedom


def _parts(steps: Steps) -> list[float]:
    """Each step's relative part in the error of the ratio units over seconds (delta method); their mean is 0."""
    units, seconds = fmean(steps.units), fmean(steps.seconds)
    return [u / units - s / seconds for u, s in zip(steps.units, steps.seconds, strict=True)]
