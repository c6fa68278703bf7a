"""The measured windows of a study, in the order of time, and which of them were disturbed. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from storage.records import RunRecord

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Whole = NDArray[np.int64]
    Flags = NDArray[np.bool_]

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
    found = [made for run in runs if run.purpose in purposes and (made := window_of(run)) is not None]
    return sorted(found, key=lambda window: (window.at, window.run_id))


def by_trial(windows: Iterable[Window]) -> Mapping[int, list[Window]]:
    """Windows by trial, in their order."""
    found: dict[int, list[Window]] = defaultdict(list)
    for window in windows:
        found[window.trial_id].append(window)
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Readings:
    """Windows in columns, one entry a window, in the order of time: for studies of any size.

    Attributes:
        trial_ids: Whose they are.
        logs: As :attr:`Window.log_throughput`.
        errors: As :attr:`Window.relative_error`.
        at: When their runs started, in seconds since 1970.
        disturbed: As :attr:`Window.disturbed`.
    """

    trial_ids: Whole
    logs: Floats
    errors: Floats
    at: Floats
    disturbed: Flags

    @classmethod
    def of(cls, windows: Sequence[Window]) -> Readings:
        """Of windows that are in the order of time."""
        import numpy as np

        return cls(
            trial_ids=np.array([each.trial_id for each in windows], dtype=np.int64),
            logs=np.array([each.log_throughput for each in windows], dtype=np.float64),
            errors=np.array([each.relative_error for each in windows], dtype=np.float64),
            at=np.array([each.at.timestamp() for each in windows], dtype=np.float64),
            disturbed=np.array([each.disturbed for each in windows], dtype=np.bool_),
        )

    def __len__(self) -> int:
        return len(self.logs)

    def those(self, which: Flags) -> Readings:
        """Some of them."""
        return Readings(**{name: column[which] for name, column in vars(self).items()})

    def joined(self, windows: Sequence[Window]) -> Readings:
        """With further windows at their places in time. Costs what is new, beside copies of the columns."""
        import numpy as np

        if not windows:
            return self
        more = Readings.of(sorted(windows, key=lambda window: (window.at, window.run_id)))
        places = np.searchsorted(self.at, more.at, side="right")
        return Readings(**{name: np.insert(column, places, vars(more)[name]) for name, column in vars(self).items()})


def mark_disturbed(readings: Readings, baseline_id: int | None) -> Readings:
    """Marks every window whose nearest baseline window in time is off the baseline's median by :data:`DISTURBED`.

    With fewer than three baseline windows nothing says which of them is right, and nothing is marked.
    """
    import numpy as np

    baseline = readings.those(readings.trial_ids == baseline_id)
    if len(baseline) < 3:
        return readings
    off = np.abs(baseline.logs - np.median(baseline.logs)) > DISTURBED
    return replace(readings, disturbed=off[_nearest(readings.at, baseline.at)])


def counted(readings: Readings) -> Readings:
    """The windows that count: of each trial the undisturbed ones, or all when there is no other."""
    import numpy as np

    if not readings.disturbed.any():
        return readings
    _, trial = np.unique(readings.trial_ids, return_inverse=True)
    clean = np.bincount(trial, weights=~readings.disturbed)
    return readings.those(~readings.disturbed | (clean[trial] == 0))


def window_of(run: RunRecord) -> Window | None:
    """What a run measured; None when it did not complete."""
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


def _nearest(at: Floats, others: Floats) -> Whole:
    """For each time, which of the others (rising) is nearest to it; the earlier of two that are equally near."""
    import numpy as np

    after = np.clip(np.searchsorted(others, at), 1, len(others) - 1)
    earlier = at - others[after - 1] <= others[after] - at
    return np.where(earlier, after - 1, after).astype(np.int64)
