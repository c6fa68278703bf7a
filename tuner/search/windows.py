"""The measured windows of a study, in the order of time, and which of them were disturbed. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from storage.records import RunRecord

SEARCH_PURPOSES = frozenset({"search", "repeat"})
"""Windows of these purposes enter the interval of a trial; the confirmation's are judged on their own."""

DISTURBED = math.log(1.25)
"""A baseline window a quarter off the baseline's median means that whatever ran then was disturbed."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """One measured window.

    Attributes:
        log_throughput: Natural logarithm of its units per second.
        relative_error: Its own relative standard error, from inside the window; 0 when it could not tell.
        at: When its run started.
        disturbed: Whether the baseline beside it in time was far off its median.
    """

    run_id: str
    trial_id: int
    log_throughput: float
    relative_error: float
    at: datetime
    disturbed: bool = False


def windows_of(runs: Iterable[RunRecord], purposes: frozenset[str] = SEARCH_PURPOSES) -> list[Window]:
    """The completed windows of those purposes, earliest first."""
    found = [made for run in runs if run.purpose in purposes and (made := _window(run)) is not None]
    return sorted(found, key=lambda window: (window.at, window.run_id))


def by_trial(windows: Iterable[Window]) -> Mapping[int, list[Window]]:
    """Windows by trial, in their order."""
    found: dict[int, list[Window]] = defaultdict(list)
    for window in windows:
        found[window.trial_id].append(window)
    return found


def mark_disturbed(windows: Sequence[Window], baseline_id: int | None) -> list[Window]:
    """Marks every window whose nearest baseline window in time is off the baseline's median by :data:`DISTURBED`.

    With fewer than three baseline windows nothing says which of them is right, and nothing is marked.
    """
    baseline = [window for window in windows if window.trial_id == baseline_id]
    if len(baseline) < 3:
        return list(windows)
    middle = median(window.log_throughput for window in baseline)
    return [_marked(window, _nearest(window, baseline), middle) for window in windows]


def counted(windows: Sequence[Window]) -> list[Window]:
    """The windows of one trial that count: the undisturbed ones, or all when there is no other."""
    clean = [window for window in windows if not window.disturbed]
    return clean or list(windows)


def _window(run: RunRecord) -> Window | None:
    if run.outcome != "completed" or run.trial_id is None or not run.throughput or run.throughput <= 0:
        return None
    return Window(
        run_id=run.id,
        trial_id=run.trial_id,
        log_throughput=math.log(run.throughput),
        relative_error=_own_error(run),
        at=run.started_at,
    )


def _own_error(run: RunRecord) -> float:
    said = run.measurement.get("relative_standard_error")
    return float(said) if isinstance(said, (int, float)) and math.isfinite(said) and said > 0 else 0.0


def _nearest(window: Window, baseline: Sequence[Window]) -> Window:
    return min(baseline, key=lambda other: abs((other.at - window.at).total_seconds()))


def _marked(window: Window, beside: Window, middle: float) -> Window:
    off = abs(beside.log_throughput - middle) > DISTURBED
    return window if off == window.disturbed else Window(**{**window.__dict__, "disturbed": off})
