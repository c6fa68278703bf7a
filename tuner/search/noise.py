"""Intervals that are true on a shared machine, and comparisons that call a tie a tie. Pure.

Model, in natural logarithms of throughput: window r of configuration c reads ``mu_c + e_r``. The error ``e_r`` has two
parts: what the window itself shows (its own standard error) and what no window can see from inside, because a neighbour
or a clock stays for all of it: the between-run variance ``tau^2``. It is pooled over every configuration of the study
with at least two windows; before there are any, a stated prior stands for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from storage.records import RunRecord, TrialRecord
from tuner.search.windows import Window, by_trial, counted, mark_disturbed, windows_of

CONFIDENCE = 0.95

PRIOR_SPREAD: Mapping[str, float] = {"cpu": 0.03, "cuda": 0.01}
"""Relative between-run standard deviation assumed before a study has repeats (a quiet CPU 3 %, a GPU 1 %)."""

PRIOR_FREEDOM = 3.0
"""The prior weighs as much as so many degrees of freedom."""

FEWEST_CONTROLS = 6
"""Baseline windows needed before the baseline may serve as a control for drift."""

CONTROL_GAIN = 0.7
"""The control is used when it brings the baseline's own variance below this share: less can be luck."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The pooled between-run spread of a study.

    Attributes:
        relative: Standard deviation between windows of the same configuration, relative, their own errors taken out.
        freedom: Degrees of freedom behind it, the prior's included.
        windows: Repeated windows it was learnt from; 0 means that it is the prior alone.
    """

    relative: float
    freedom: float
    windows: int = 0


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A throughput with its 95 % interval.

    Attributes:
        mean: Units per second (the geometric mean over windows).
        low: Lower end, units per second.
        high: Upper end, units per second.
        standard_error: Of ``log(mean)``: relative.
        windows: Windows it rests on.
        freedom: Degrees of freedom of the standard error.
        disturbed: Whether every window it rests on was taken while the machine was disturbed.
    """

    mean: float
    low: float
    high: float
    standard_error: float
    windows: int
    freedom: float
    disturbed: bool = False

    def scaled(self, factor: float) -> Interval:
        """The interval of a throughput that is ``factor`` times as high."""
        return replace(self, mean=self.mean * factor, low=self.low * factor, high=self.high * factor)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How much faster ``a`` is than ``b``.

    Attributes:
        ratio: Throughput of a over that of b.
        low: Lower end of its 95 % interval.
        high: Upper end.
        verdict: ``faster``, ``slower`` or, when the interval holds 1, ``tie``.
    """

    ratio: float
    low: float
    high: float
    verdict: str


def t_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Two-sided quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + confidence / 2))


def pooled_spread(windows: Iterable[Window], device_kind: str) -> Spread:
    """The between-run spread over all configurations with at least two windows, with the prior of the device's kind."""
    prior = PRIOR_SPREAD.get(device_kind, PRIOR_SPREAD["cpu"])
    squares, freedom, repeated = 0.0, 0, 0
    for mine in by_trial(windows).values():
        if len(mine) < 2:
            continue
        mean = fmean(window.log_throughput for window in mine)
        own = fmean(window.relative_error**2 for window in mine)
        squares += sum((window.log_throughput - mean) ** 2 for window in mine) - (len(mine) - 1) * own
        freedom += len(mine) - 1
        repeated += len(mine)
    total = PRIOR_FREEDOM + freedom
    variance = (PRIOR_FREEDOM * prior**2 + max(squares, 0.0)) / total
    return Spread(relative=math.sqrt(variance), freedom=total, windows=repeated)


def intervals(runs: Sequence[RunRecord], trials: Sequence[TrialRecord], device_kind: str) -> Mapping[int, Interval]:
    """The interval of every trial with a measured search or repeat window, by trial id.

    Windows taken while the baseline read far off its median do not count once a trial has others. The repeated baseline
    corrects drift where that makes the baseline itself repeat better (see :func:`control_drift`).
    """
    baseline = next((trial.id for trial in trials if trial.number == 0), None)
    marked = mark_disturbed(windows_of(runs), baseline)
    kept = [window for mine in by_trial(marked).values() for window in counted(mine)]
    kept = control_drift(sorted(kept, key=lambda window: window.at), baseline)
    spread = pooled_spread(kept, device_kind)
    return {trial_id: interval_of(mine, spread) for trial_id, mine in by_trial(kept).items()}


def study_spread(runs: Sequence[RunRecord], trials: Sequence[TrialRecord], device_kind: str) -> Spread:
    """The pooled spread behind :func:`intervals`."""
    baseline = next((trial.id for trial in trials if trial.number == 0), None)
    marked = mark_disturbed(windows_of(runs), baseline)
    kept = [window for mine in by_trial(marked).values() for window in counted(mine)]
    return pooled_spread(control_drift(sorted(kept, key=lambda window: window.at), baseline), device_kind)


def interval_of(windows: Sequence[Window], spread: Spread) -> Interval:
    """Mean of a configuration's windows, plus and minus t times its standard error; windows must not be empty."""
    mean = fmean(window.log_throughput for window in windows)
    own = fmean(window.relative_error**2 for window in windows)
    error = math.sqrt((spread.relative**2 + own) / len(windows))
    half = t_quantile(spread.freedom) * error
    return Interval(
        mean=math.exp(mean),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
        standard_error=error,
        windows=len(windows),
        freedom=spread.freedom,
        disturbed=all(window.disturbed for window in windows),
    )


def compare(a: Interval, b: Interval) -> Comparison:
    """Compares two trials measured at different times."""
    error = math.hypot(a.standard_error, b.standard_error)
    return comparison(math.log(a.mean / b.mean), error, min(a.freedom, b.freedom))


def comparison(log_ratio: float, standard_error: float, freedom: float, confidence: float = CONFIDENCE) -> Comparison:
    """A comparison from a log ratio, its standard error and the degrees of freedom behind that."""
    half = t_quantile(freedom, confidence) * standard_error
    low, high = math.exp(log_ratio - half), math.exp(log_ratio + half)
    verdict = "faster" if low > 1 else "slower" if high < 1 else "tie"
    return Comparison(ratio=math.exp(log_ratio), low=low, high=high, verdict=verdict)


def overlaps(a: Interval, b: Interval) -> bool:
    """Whether two intervals share a point."""
    return a.low <= b.high and b.low <= a.high


def control_drift(windows: Sequence[Window], baseline_id: int | None) -> list[Window]:
    """Takes the baseline's own movement, interpolated in time, out of every window, where that helps.

    It helps when each baseline window is better predicted by its neighbours in time than by the baseline's mean: then
    the machine drifts slowly against the distance of the repeats. Otherwise the windows come back as they are.

    Args:
        windows: In the order of time.
        baseline_id: The trial repeated as control.
    """
    baseline = [window for window in windows if window.trial_id == baseline_id]
    if len(baseline) < FEWEST_CONTROLS:
        return list(windows)
    times = [window.at.timestamp() for window in baseline]
    levels = [window.log_throughput for window in baseline]
    if _left_out_variance(times, levels) > CONTROL_GAIN * _variance(levels):
        return list(windows)
    middle = fmean(levels)
    return [_controlled(window, baseline_id, times, levels, middle) for window in windows]


def _controlled(
    window: Window, baseline_id: int | None, times: Sequence[float], levels: Sequence[float], middle: float
) -> Window:
    at = window.at.timestamp()
    if window.trial_id == baseline_id:
        others = [index for index, time in enumerate(times) if time != at]
        times, levels = [times[index] for index in others], [levels[index] for index in others]
    moved = _level_at(at, times, levels) - middle
    return Window(**{**window.__dict__, "log_throughput": window.log_throughput - moved})


def _left_out_variance(times: Sequence[float], levels: Sequence[float]) -> float:
    """Mean squared error of predicting each inner level from its two neighbours."""
    inner = range(1, len(levels) - 1)
    errors = [
        levels[i] - _level_at(times[i], (times[i - 1], times[i + 1]), (levels[i - 1], levels[i + 1])) for i in inner
    ]
    return fmean(error**2 for error in errors)


def _level_at(at: float, times: Sequence[float], levels: Sequence[float]) -> float:
    import numpy as np

    return float(np.interp(at, times, levels))


def _variance(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)
