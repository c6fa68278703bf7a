"""A study's trials and runs as this process knows them: read whole once, then only what has changed since."""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from storage import runs, trials
from tuner.search.windows import SEARCH_PURPOSES, Readings, Window, window_of

if TYPE_CHECKING:
    from storage.database import Database
    from storage.records import RunRecord, TrialRecord

Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A study at one moment.

    Attributes:
        trials: By number.
        runs: By the time they started.
        readings: The windows of these runs.
    """

    trials: tuple[TrialRecord, ...]
    runs: tuple[RunRecord, ...]
    readings: Readings


class StudyRows:
    """The rows of one study. Thread-safe; a look costs what has changed, not what there is."""

    def __init__(self, database: Database, study_id: int) -> None:
        self._database, self._study_id = database, study_id
        self._lock = threading.Lock()
        self._runs: _Ordered[RunRecord] = _Ordered()
        self._trials: _Ordered[TrialRecord] = _Ordered()
        self._runs_seen = self._trials_seen = 0
        self._measured: set[str] = set()
        self._readings = Readings.of(())

    def read(self) -> Rows:
        """As the store has them now.

        Runs are read first: a run that ends in between is then one in progress of a finished trial, which harms nobody.
        The other way round it would be an open trial without a run, and be tried once more.
        """
        with self._lock:
            changed = runs.changed_since(self._database, self._study_id, self._runs_seen)
            for run in changed:
                self._runs.put((run.started_at, run.id), run)
                self._runs_seen = max(self._runs_seen, run.changed)
            for trial in trials.changed_since(self._database, self._study_id, self._trials_seen):
                self._trials.put((trial.number,), trial)
                self._trials_seen = max(self._trials_seen, trial.changed)
            self._readings = self._readings.joined(self._new_windows(changed))
            return Rows(trials=self._trials.rows(), runs=self._runs.rows(), readings=self._readings)

    def _new_windows(self, changed: tuple[RunRecord, ...]) -> list[Window]:
        """What runs have measured that had not ended before."""
        searching = [run for run in changed if run.purpose in SEARCH_PURPOSES and run.id not in self._measured]
        found = [window for run in searching if (window := window_of(run)) is not None]
        self._measured.update(window.run_id for window in found)
        return found


class _Ordered(Generic[Row]):
    """Rows by a key that a row keeps; most new ones come last."""

    def __init__(self) -> None:
        self._keys: list[Any] = []
        self._rows: list[Row] = []

    def put(self, key: Any, row: Row) -> None:
        """Adds a row, or takes the place of the one with its key."""
        place = bisect_left(self._keys, key)
        if place < len(self._keys) and self._keys[place] == key:
            self._rows[place] = row
            return
        self._keys.insert(place, key)
        self._rows.insert(place, row)

    def rows(self) -> tuple[Row, ...]:
        return tuple(self._rows)
