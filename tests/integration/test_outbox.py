"""Results on their way to both kinds of store: delivered once, late ones kept aside, and a heartbeat that hears."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from storage import queue, runs, studies, trials, workers
from storage.database import Database
from storage.records import StudyRecord
from tuner.stop import Stop
from tuner.work.advance import Advance
from tuner.work.heartbeat import Heartbeat
from tuner.work.leaving import Leaving
from tuner.work.outbox import Outbox, Result


@pytest.fixture
def study(database: Database) -> StudyRecord:
    return queue.submit(database, name="s", spec={}, identity={})


def begun(database: Database, study: StudyRecord) -> tuple[int, str]:
    """A trial with a run in progress."""
    trial = trials.reserve(database, study_id=study.id, config={}, config_key="k", source="random")
    assert trial is not None
    run = runs.start(database, id=str(uuid.uuid4()), study_id=study.id, trial_id=trial.id, purpose="search")
    return trial.id, run.id


def result(trial_id: int, run: str, throughput: float = 2.5) -> Result:
    return Result(
        run=run,
        outcome="completed",
        fields={"throughput": throughput, "step_seconds": (0.1, 0.2), "measurement": {"bad": float("nan")}},
        trial_id=trial_id,
        trial={"throughput": throughput, "windows": 1},
    )


@pytest.mark.case("G05")
def test_a_result_survives_its_worker_and_is_delivered_once(
    database: Database, study: StudyRecord, tmp_path: Path
) -> None:
    trial_id, run = begun(database, study)
    path = Outbox(tmp_path, database).put(result(trial_id, run))
    assert [each.name for each in path.parent.iterdir()] == [path.name]  # nothing is left aside
    copy = path.read_text()
    successor = Outbox(tmp_path, database)
    assert successor.deliver_all() == 1
    assert successor.waiting() == ()
    stored = trials.get(database, trial_id)
    assert (stored.outcome, stored.throughput) == ("completed", 2.5)
    assert runs.get(database, run).step_seconds == (0.1, 0.2)
    path.write_text(copy)  # a worker that died between the store and the removal
    assert successor.deliver_all() == 1
    assert trials.get(database, trial_id) == stored


@pytest.mark.case("G01")
def test_a_run_declared_lost_keeps_its_outcome_and_its_late_result_counts_nowhere(
    database: Database, study: StudyRecord, tmp_path: Path
) -> None:
    trial_id, run = begun(database, study)
    outbox = Outbox(tmp_path, database)
    outbox.put(result(trial_id, run))
    trials.release(database, trial_id)
    outbox.deliver_all()
    late = runs.get(database, run)
    assert (late.outcome, late.cause, late.throughput) == ("infra", "worker_lost", None)
    assert late.evidence["late"]["throughput"] == 2.5
    assert trials.get(database, trial_id).outcome is None


def test_a_trial_that_another_run_has_ended_stays_and_the_run_keeps_its_own_end(
    database: Database, study: StudyRecord, tmp_path: Path
) -> None:
    trial_id, run = begun(database, study)
    trials.finish(database, trial_id, outcome="device_oom")
    outbox = Outbox(tmp_path, database)
    outbox.put(result(trial_id, run))
    outbox.deliver_all()
    assert runs.get(database, run).outcome == "completed"
    assert trials.get(database, trial_id).outcome == "device_oom"


def test_what_nobody_can_use_does_not_stand_in_the_way(database: Database, study: StudyRecord, tmp_path: Path) -> None:
    trial_id, run = begun(database, study)
    outbox = Outbox(tmp_path, database)
    outbox.put(result(trial_id, "a run of a study that was deleted"))
    broken = outbox.folder / "broken.json"
    broken.write_text('{"run": ')
    outbox.put(result(trial_id, run))
    outbox.deliver_all()
    assert trials.get(database, trial_id).outcome == "completed"
    assert [path.name for path in outbox.folder.iterdir()] == ["broken.unreadable"]


def test_another_stores_results_are_not_delivered_here(database: Database, tmp_path: Path) -> None:
    other: Any = SimpleNamespace(safe_url="postgresql://elsewhere/tuner")
    Outbox(tmp_path, other).put(result(1, "r"))
    assert Outbox(tmp_path, database).waiting() == ()


def register(database: Database, lease_seconds: float = 1.2) -> str:
    made = workers.register(
        database, id=str(uuid.uuid4()), host="h", pid=1, device_kind="cpu", device_name="EPYC",
        lease_seconds=lease_seconds,
    )  # fmt: skip
    return made.id


def watching(database: Database, study: StudyRecord) -> Any:
    """As much of a session as a heartbeat needs."""
    return SimpleNamespace(
        study=study,
        stop=Leaving(Stop()),
        running=set(),
        taken_away=set(),
        advances={},
        workers=1,
        after_its_end=False,
        save_seconds=lambda: None,
    )


def until(condition: Any, seconds: float = 10) -> None:
    ends_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.02)


def test_a_heartbeat_keeps_the_lease_hears_people_and_retires(database: Database, study: StudyRecord) -> None:
    mine = register(database)
    claimed = queue.claim_study(database, mine)
    assert claimed is not None
    session = watching(database, claimed)
    with Heartbeat(database, mine, lease_seconds=1.2, session=session) as heartbeat:
        before = workers.get(database, mine).heartbeat_at
        until(lambda: workers.get(database, mine).heartbeat_at > before)
        assert not session.stop.is_set()
        queue.pause(database, "s")
        until(lambda: session.stop.why == "paused")
        assert session.stop.ends_run()
        assert not heartbeat.lost
    assert workers.get(database, mine).status == "gone"


def test_a_heartbeat_writes_how_far_runs_have_come_and_only_what_has_changed(
    database: Database, study: StudyRecord
) -> None:
    mine = register(database)
    claimed = queue.claim_study(database, mine)
    assert claimed is not None
    session = watching(database, claimed)
    _, moving = begun(database, study)
    _, waiting = begun(database, study)
    session.advances |= {moving: Advance(phase="build"), waiting: Advance(phase="compile")}

    def stored(run: str) -> Any:
        return runs.get(database, run).progress or {}

    with Heartbeat(database, mine, lease_seconds=1.2, session=session) as heartbeat:
        until(lambda: stored(moving) and stored(waiting))
        noted = stored(waiting)
        assert noted["phase"] == "compile"
        session.advances[moving] = Advance(phase="measure", steps=3, units=6.0, seconds=2.0, memory_bytes=7)
        until(lambda: stored(moving)["phase"] == "measure")
        assert stored(moving) | {"at": ""} == {
            "phase": "measure", "steps": 3, "units_per_second": 3.0, "memory_bytes": 7, "at": "",
        }  # fmt: skip
        assert stored(waiting) == noted
        assert heartbeat.errors == 0


@pytest.mark.case("G01", "G02")
def test_a_heartbeat_recovers_what_a_silent_worker_left_and_closes_it_in_an_ended_study(
    database: Database, study: StudyRecord
) -> None:
    dead, alive = register(database), register(database)
    assert queue.claim_study(database, dead) is not None
    trial = trials.reserve(
        database, study_id=study.id, config={}, config_key="k", source="random", worker_id=dead
    )  # fmt: skip
    assert trial is not None
    runs.start(database, id="lost", study_id=study.id, trial_id=trial.id, purpose="search", worker_id=dead)
    queue.cancel(database, "s")
    with Heartbeat(database, alive, lease_seconds=1.2):
        until(lambda: runs.get(database, "lost").outcome is not None)
        until(lambda: trials.get(database, trial.id).outcome == "cancelled")
    assert runs.get(database, "lost").cause == "worker_lost"
    assert studies.get(database, study.id).status == "cancelled"


def test_a_worker_that_was_declared_lost_hears_it(database: Database, study: StudyRecord) -> None:
    mine = register(database)
    claimed = queue.claim_study(database, mine)
    assert claimed is not None
    session = watching(database, claimed)
    workers.retire(database, mine)
    with Heartbeat(database, mine, lease_seconds=1.2, session=session) as heartbeat:
        until(lambda: heartbeat.lost)
    assert session.stop.why == "lost"


def test_reopened_trials_are_those_that_their_studys_end_had_cancelled(database: Database, study: StudyRecord) -> None:
    first, run = begun(database, study)
    runs.record_end(database, id=run, outcome="completed", trial_id=first)
    second, _ = begun(database, study)
    trials.finish(database, second, outcome="cancelled", evidence={"text": "over"})
    assert trials.reopen(database, study.id) == 1
    assert [each.outcome for each in trials.list_of(database, study.id)] == ["completed", None]
    assert trials.reopen(database, study.id) == 0
    assert json.dumps(trials.get(database, second).evidence) == "{}"
