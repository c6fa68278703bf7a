"""A study's trials and runs as this process knows them: read whole once, then only what has changed since."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from storage import runs, trials

if TYPE_CHECKING:
    from storage.database import Database
    from storage.records import RunRecord, TrialRecord


class StudyRows:
    """The rows of one study. Thread-safe; a look costs what has changed, not what there is."""

    def __init__(self, database: Database, study_id: int) -> None:
        self._database, self._study_id = database, study_id
        self._lock = threading.Lock()
        self._runs: dict[str, RunRecord] = {}
        self._trials: dict[int, TrialRecord] = {}
        self._runs_seen = self._trials_seen = 0

    def read(self) -> tuple[tuple[TrialRecord, ...], tuple[RunRecord, ...]]:
        """Trials by number and runs by the time they started, as the store has them now.

        Runs are read first: a run that ends in between is then one in progress of a finished trial, which harms nobody.
        The other way round it would be an open trial without a run, and be tried once more.
        """
        with self._lock:
            for run in runs.changed_since(self._database, self._study_id, self._runs_seen):
                self._runs[run.id] = run
                self._runs_seen = max(self._runs_seen, run.changed)
            for trial in trials.changed_since(self._database, self._study_id, self._trials_seen):
                self._trials[trial.id] = trial
                self._trials_seen = max(self._trials_seen, trial.changed)
            return (
                tuple(sorted(self._trials.values(), key=lambda trial: trial.number)),
                tuple(sorted(self._runs.values(), key=lambda run: (run.started_at, run.id))),
            )
