"""A trial whose outcome holds no longer gets its next attempt; its runs stay."""

from __future__ import annotations

import pytest

from storage import studies, trials
from storage.database import Database
from storage.errors import NotFound


def test_a_trial_is_reopened_and_ends_once_more(sqlite_database: Database) -> None:
    study = studies.create(sqlite_database, name="s", spec={}, identity={})
    trial = trials.reserve(sqlite_database, study_id=study.id, config={}, config_key="k", source="baseline")
    assert trial is not None
    trials.finish(
        sqlite_database, trial.id, outcome="device_oom", cause="cap", confidence="certain",
        evidence={"memory_limit_bytes": 1},
    )  # fmt: skip
    again = trials.reopen_one(sqlite_database, trial.id)
    assert (again.number, again.outcome, again.cause, again.confidence, again.evidence) == (0, None, None, None, {})
    assert trials.finish(sqlite_database, trial.id, outcome="completed", throughput=1.0).outcome == "completed"


def test_there_must_be_one(sqlite_database: Database) -> None:
    with pytest.raises(NotFound):
        trials.reopen_one(sqlite_database, 7)
