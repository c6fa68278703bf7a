"""How far a run has come, on both kinds of store: seen while it is open, gone with its end, no change of the study."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from storage import recovery, runs, studies, trials, workers
from storage.database import Database
from storage.records import RunRecord, StudyRecord

MEASURING = {"phase": "measure", "steps": 12, "units_per_second": 3420.5, "memory_bytes": 5 * 2**30}


@pytest.fixture
def study(database: Database) -> StudyRecord:
    return studies.create(database, name="s", spec={}, identity={})


def begun(database: Database, study: StudyRecord, worker: str | None = None) -> RunRecord:
    trial = trials.reserve(database, study_id=study.id, config={}, config_key="k", source="random", worker_id=worker)
    assert trial is not None
    return runs.start(
        database, id=str(uuid.uuid4()), study_id=study.id, trial_id=trial.id, purpose="search", worker_id=worker
    )


def kept(database: Database, run: RunRecord) -> dict[str, object] | None:
    """What is stored, without the time it was noted."""
    found = runs.get(database, run.id).progress
    return None if found is None else {name: value for name, value in found.items() if name != "at"}


def test_a_new_run_has_none(database: Database, study: StudyRecord) -> None:
    assert begun(database, study).progress is None


def test_the_last_moment_of_several_runs_is_kept_with_its_time(database: Database, study: StudyRecord) -> None:
    one, other = begun(database, study), begun(database, study)
    runs.note_progress(database, {one.id: {"phase": "build"}, other.id: {"phase": "load"}})
    runs.note_progress(database, {one.id: MEASURING, "unknown": MEASURING})
    assert (kept(database, one), kept(database, other)) == (MEASURING, {"phase": "load"})
    at = datetime.fromisoformat((runs.get(database, one.id).progress or {})["at"])
    assert abs(datetime.now(UTC) - at) < timedelta(minutes=1)
    assert {run.id for run in runs.unfinished(database, study_id=study.id) if run.progress} == {one.id, other.id}


def test_it_is_no_change_of_the_study(database: Database, study: StudyRecord) -> None:
    run = begun(database, study)
    version = studies.get(database, study.id).version
    runs.note_progress(database, {run.id: MEASURING})
    assert studies.get(database, study.id).version == version
    assert runs.changed_since(database, study.id, version) == ()


def test_nothing_to_note_asks_the_store_nothing(database: Database) -> None:
    database.close()
    runs.note_progress(database, {})


def test_a_rate_that_is_no_number_is_null(database: Database, study: StudyRecord) -> None:
    run = begun(database, study)
    runs.note_progress(database, {run.id: {"units_per_second": float("inf")}})
    assert kept(database, run) == {"units_per_second": None}


@pytest.mark.parametrize("how", ["finish", "record_end", "release"])
def test_it_goes_with_the_runs_end_and_does_not_come_back(database: Database, study: StudyRecord, how: str) -> None:
    run = begun(database, study)
    runs.note_progress(database, {run.id: MEASURING})
    assert run.trial_id is not None
    if how == "finish":
        assert runs.finish(database, run.id, outcome="completed").progress is None
    elif how == "record_end":
        ended, _ = runs.record_end(database, id=run.id, outcome="crashed", trial_id=run.trial_id)
        assert ended.progress is None
    else:
        trials.release(database, run.trial_id)
    runs.note_progress(database, {run.id: MEASURING})  # its worker has not heard of it yet
    assert runs.get(database, run.id).progress is None
    assert _nulls(database) == 1  # SQL's null, not JSON's


def test_it_goes_when_its_worker_is_lost(database: Database, study: StudyRecord) -> None:
    dead, judge = (_worker(database) for _ in range(2))
    run = begun(database, study, dead)
    runs.note_progress(database, {run.id: MEASURING})
    workers.retire(database, dead)
    workers.beat(database, judge)
    assert recovery.recover(database, judge).runs == (run.id,)
    assert runs.get(database, run.id).progress is None


def _worker(database: Database) -> str:
    made = workers.register(database, id=str(uuid.uuid4()), host="h", pid=1, device_kind="cpu", device_name="EPYC")
    return made.id


def _nulls(database: Database) -> int:
    counted = text("SELECT count(*) FROM tuner_run WHERE progress IS NULL")
    return int(database.read(lambda session: session.scalar(counted)) or 0)
