"""Intervals that are true on a shared machine, and comparisons that call a tie a tie. Pure.

Model, in natural logarithms of throughput: window r of configuration c reads ``mu_c + e_r``. The error ``e_r`` has two
parts: what the window itself shows (its own standard error) and what no window can see from inside, because a neighbour
or a clock stays for all of it: the between-run variance ``tau^2``. It is pooled over every configuration of the study
with at least two windows; before there are any, a stated prior stands for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING

from storage.records import RunRecord, TrialRecord
from tuner.search.windows import Readings, Window, counted, mark_disturbed, windows_of

if TYPE_CHECKING:
    from tuner.search.windows import Flags, Floats, Whole

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


@lru_cache(maxsize=256)
def t_quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Two-sided quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + confidence / 2))


def pooled_spread(windows: Iterable[Window], device_kind: str) -> Spread:
    """The between-run spread over all configurations with at least two windows, with the prior of the device's kind."""
    return _spread(Readings.of(list(windows)), device_kind)


def _spread(readings: Readings, device_kind: str) -> Spread:
    prior = PRIOR_SPREAD.get(device_kind, PRIOR_SPREAD["cpu"])
    groups = _Groups.of(readings)
    several = groups.counts >= 2
    freedom = int((groups.counts[several] - 1).sum())
    squares = float((groups.squares - (groups.counts - 1) * groups.own)[several].sum())
    total = PRIOR_FREEDOM + freedom
    variance = (PRIOR_FREEDOM * prior**2 + max(squares, 0.0)) / total
    return Spread(relative=math.sqrt(variance), freedom=total, windows=int(groups.counts[several].sum()))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Groups:
    """Windows by trial, in columns.

    Attributes:
        ids: The trials', rising.
        counts: How many windows.
        means: Of their logarithms.
        own: Mean square of their own errors.
        squares: Sum of squares around the mean.
        disturbed: Whether all of them are.
    """

    ids: Whole
    counts: Whole
    means: Floats
    own: Floats
    squares: Floats
    disturbed: Flags

    @classmethod
    def of(cls, readings: Readings) -> _Groups:
        import numpy as np

        ids, trial, counts = np.unique(readings.trial_ids, return_inverse=True, return_counts=True)

        def summed(values: Floats) -> Floats:
            return np.bincount(trial, weights=values, minlength=len(ids)).astype(np.float64)

        means = summed(readings.logs) / counts
        return cls(
            ids=ids,
            counts=counts,
            means=means,
            own=summed(readings.errors**2) / counts,
            squares=summed((readings.logs - means[trial]) ** 2),
            disturbed=summed(readings.disturbed.astype(np.float64)) == counts,
        )


class Intervals(Mapping[int, Interval]):
    """Intervals by trial id, kept in columns: one is made when it is asked for.

    Args:
        readings: The windows that count.
        device_kind: For the prior.
    """

    def __init__(self, readings: Readings, device_kind: str) -> None:
        self._spread = _spread(readings, device_kind)
        self._groups = _Groups.of(readings)
        ids: list[int] = self._groups.ids.tolist()
        self._place = {trial_id: place for place, trial_id in enumerate(ids)}

    def __getitem__(self, trial_id: int) -> Interval:
        place, groups = self._place[trial_id], self._groups
        return _interval(
            float(groups.means[place]),
            float(groups.own[place]),
            int(groups.counts[place]),
            self._spread,
            disturbed=bool(groups.disturbed[place]),
        )

    def __iter__(self) -> Iterator[int]:
        return iter(self._place)

    def __len__(self) -> int:
        return len(self._place)

    def __contains__(self, trial_id: object) -> bool:
        return trial_id in self._place

    def means(self) -> Mapping[int, tuple[float, int]]:
        """Mean (units per second) and number of windows by trial id: all at once."""
        import numpy as np

        mean: list[float] = np.exp(self._groups.means).tolist()
        windows: list[int] = self._groups.counts.tolist()
        return dict(zip(self._place, zip(mean, windows, strict=True), strict=True))

    def disturbed(self) -> list[int]:
        """Ids of the trials all of whose windows were taken while the machine was disturbed."""
        found: list[int] = self._groups.ids[self._groups.disturbed].tolist()
        return found

    def reaching(self, low: float) -> frozenset[int]:
        """Ids of the trials whose interval's upper end is at least that, in units per second."""
        import numpy as np

        groups, spread = self._groups, self._spread
        error = np.sqrt((spread.relative**2 + groups.own) / groups.counts)
        high = np.exp(groups.means + t_quantile(spread.freedom) * error)
        return frozenset(groups.ids[high >= low].tolist())


def intervals(
    runs: Sequence[RunRecord], trials: Sequence[TrialRecord], device_kind: str, readings: Readings | None = None
) -> Intervals:
    """The interval of every trial with a measured search or repeat window, by trial id.

    Windows taken while the baseline read far off its median do not count once a trial has others. The repeated baseline
    corrects drift where that makes the baseline itself repeat better (see :func:`control_drift`).

    Args:
        runs: All runs of the study.
        trials: All trials of the study.
        device_kind: ``cpu`` or ``cuda``.
        readings: The windows of these runs, where they are known already; None looks.
    """
    return Intervals(_that_count(runs, trials, readings), device_kind)


def study_spread(
    runs: Sequence[RunRecord], trials: Sequence[TrialRecord], device_kind: str, readings: Readings | None = None
) -> Spread:
    """The pooled spread behind :func:`intervals`, of the same arguments."""
    return _spread(_that_count(runs, trials, readings), device_kind)


def _that_count(runs: Sequence[RunRecord], trials: Sequence[TrialRecord], readings: Readings | None) -> Readings:
    baseline = next((trial.id for trial in trials if trial.number == 0), None)
    known = Readings.of(windows_of(runs)) if readings is None else readings
    return control_drift(counted(mark_disturbed(known, baseline)), baseline)


def interval_of(windows: Sequence[Window], spread: Spread) -> Interval:
    """Mean of a configuration's windows, plus and minus t times its standard error; windows must not be empty."""
    mean = fmean(window.log_throughput for window in windows)
    own = fmean(window.relative_error**2 for window in windows)
    return _interval(mean, own, len(windows), spread, disturbed=all(window.disturbed for window in windows))


def _interval(mean: float, own: float, windows: int, spread: Spread, *, disturbed: bool) -> Interval:
    error = math.sqrt((spread.relative**2 + own) / windows)
    half = t_quantile(spread.freedom) * error
    return Interval(
        mean=math.exp(mean),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
        standard_error=error,
        windows=windows,
        freedom=spread.freedom,
        disturbed=disturbed,
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


def control_drift(readings: Readings, baseline_id: int | None) -> Readings:
    """Takes the baseline's own movement, interpolated in time, out of every window, where that helps.

    It helps when each baseline window is better predicted by its neighbours in time than by the baseline's mean: then
    the machine drifts slowly against the distance of the repeats. Otherwise the windows come back as they are.

    Args:
        readings: In the order of time.
        baseline_id: The trial repeated as control.
    """
    import numpy as np

    own = readings.trial_ids == baseline_id
    times, levels = readings.at[own], readings.logs[own]
    if len(times) < FEWEST_CONTROLS:
        return readings
    between = _between_neighbours(times, levels)
    if float(np.mean((levels[1:-1] - between) ** 2)) > CONTROL_GAIN * float(np.var(levels, ddof=1)):
        return readings
    moved = np.interp(readings.at, times, levels)
    moved[own] = _left_out(times, levels, between)
    return replace(readings, logs=readings.logs - (moved - levels.mean()))


def _between_neighbours(times: Floats, levels: Floats) -> Floats:
    """Every inner level as its two neighbours in time predict it."""
    import numpy as np

    span = times[2:] - times[:-2]
    share = np.divide(times[1:-1] - times[:-2], span, out=np.full_like(span, 0.5), where=span > 0)
    return levels[:-2] + share * (levels[2:] - levels[:-2])


def _left_out(times: Floats, levels: Floats, between: Floats) -> Floats:
    """Every level as all the others predict it; at the same time as another, so many times over."""
    import numpy as np

    if (np.diff(times) > 0).all():
        return np.concatenate(([levels[1]], between, [levels[-2]]))
    return np.array([np.interp(at, times[times != at], levels[times != at]) for at in times])
