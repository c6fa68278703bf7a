"""What a study's process leaves behind, without a child: trials handed back, time cut short, a process that is gone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from objectives.contract import ObjectiveReference
from objectives.trial.outcome import Ending, Verdict
from storage import queue, runs, studies, trials, workers
from storage.database import Database
from tuner import api, service
from tuner import spec as specs
from tuner.errors import StudyError
from tuner.service import LOST
from tuner.spec.model import StudySpec
from tuner.stop import Stop
from tuner.work.attempts import store_end
from tuner.work.lane import Device, Lane
from tuner.work.leaving import Leaving
from tuner.work.outbox import Outbox
from tuner.work.registration import register
from tuner.work.runner import RunEnd
from tuner.work.session import Session
from tuner.work.study import _close_trials, end_study, take_up
from tuner.work.trial_runs import begin

SPEC = StudySpec(study="s", objective=ObjectiveReference(kind="causal_lm"), global_batch_size=8)
CPU = Device(kind="cpu", name="EPYC (2 cores)", total_memory_bytes=2**34, threads=2)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("TUNER_DATABASE_URL", raising=False)
    database = Database.open(f"sqlite:///{tmp_path / 'tightfit.db'}")
    database.migrate()
    yield database
    database.close()


def session_of(database: Database, folder: Path, **more: Any) -> Session:
    known = studies.find(database, "s")
    study = known or studies.create(
        database, name="s", spec=specs.to_mapping(SPEC), identity=specs.identity(SPEC)
    )  # fmt: skip
    lane = Lane(CPU, preload=(), path="", folder=folder)
    return Session(
        database=database, study=study, spec=SPEC, lanes=(lane,), stop=Leaving(Stop()),
        outbox=Outbox(folder, database), **more,
    )  # fmt: skip


def cut(session: Session, reason: str) -> int:
    """A trial whose run was ended by us for that reason; its id."""
    trial = trials.reserve(
        session.database, study_id=session.study.id, config={"micro_batch_size": 1, "accumulation_steps": 8},
        config_key="k", source="random",
    )  # fmt: skip
    assert trial is not None
    begun = begin(session, session.lane, trial, "search", session.window())
    end = RunEnd(verdict=Verdict(outcome="cancelled"), ending=Ending(killed_by_us=True, kill_reason=reason))
    store_end(session, begun, end, end.verdict, ends_trial=True)
    assert runs.get(session.database, begun.request.run).outcome == "cancelled"
    return trial.id


@pytest.mark.case("G18")
def test_a_trial_cut_by_the_studys_time_ends_with_the_search_and_gets_its_attempt_when_it_goes_on(
    store: Database, tmp_path: Path
) -> None:
    session = session_of(store, tmp_path)
    trial = cut(session, "study_time")
    assert trials.get(store, trial).outcome is None
    _close_trials(session)
    assert trials.get(store, trial).outcome == "cancelled"  # every trial of a finished study has its outcome
    take_up(session)
    assert trials.get(store, trial).outcome is None
    again = begin(session, session.lane, trials.get(store, trial), "search", session.window())
    assert (again.attempt, again.tries) == (2, 1)


def test_a_trial_of_a_cancelled_study_ends_with_its_run(store: Database, tmp_path: Path) -> None:
    session = session_of(store, tmp_path)
    session.stop.leave("cancelled")
    assert trials.get(store, cut(session, "cancelled")).outcome == "cancelled"
    paused = session_of(store, tmp_path)
    paused.stop.leave("paused")
    assert trials.get(store, cut(paused, "cancelled")).outcome is None


def test_what_a_person_set_is_never_overwritten_at_the_end(store: Database, tmp_path: Path) -> None:
    session = session_of(store, tmp_path)
    take_up(session)
    queue.cancel(store, "s")
    assert end_study(session, "finished", "all tried").status == "cancelled"
    assert studies.get(store, session.study.id).stop_reason == "cancelled by a person"


@pytest.mark.case("G01")
def test_a_process_that_is_gone_is_not_running_for_ever(store: Database, tmp_path: Path) -> None:
    session = session_of(store, tmp_path)
    take_up(session)
    register(store, CPU, lease_seconds=0.3, study_id=session.study.id)
    assert api.show("s").to_json()["status"] == "running"
    time.sleep(0.4)
    shown = api.show("s").to_json()
    assert (shown["status"], shown["stop_reason"]) == ("paused", LOST)
    (listed,) = api.list_studies()["studies"]
    assert (listed["status"], listed["workers"]) == ("paused", 1)
    assert [each["status"] for each in service.list_workers()["workers"]] == ["lost"]


def test_what_the_workers_have_is_not_run_here_and_what_runs_here_is_not_submitted(
    store: Database, tmp_path: Path
) -> None:
    queue.submit(store, name="s", spec=specs.to_mapping(SPEC), identity=specs.identity(SPEC))
    with pytest.raises(StudyError, match="tuner watch s"):
        api.run(SPEC)
    service.pause("s")
    study = studies.find(store, "s")
    assert study is not None
    assert queue.withdraw(store, study.id)
    studies.set_status(store, study.id, "running")
    register(store, CPU, lease_seconds=60, study_id=study.id)
    with pytest.raises(StudyError, match="`tuner run` is working"):
        service.submit(SPEC)


def test_a_quarantined_device_is_listed_and_released(store: Database, tmp_path: Path) -> None:
    mine = register(store, CPU, lease_seconds=60).id
    for _ in range(3):
        workers.note_infra(store, mine, "the device is busy")
    (listed,) = service.list_workers()["workers"]
    assert listed["status"] == "quarantined"
    assert "the device is busy" in listed["reason"]
    assert service.release_worker(mine[:8]) == {"worker": mine, "status": "idle"}
    with pytest.raises(StudyError, match="no workers' ids"):
        service.release_worker("nobody")


def test_a_deleted_study_is_gone_for_optuna_as_well(store: Database, tmp_path: Path) -> None:
    session = session_of(store, tmp_path)
    trial = cut(session, "study_time")
    trials.finish(store, trial, outcome="device_oom")
    assert service.rebuild_optuna("s") == {"studies": {"s": 1}}
    assert service.rebuild_optuna() == {"studies": {"s": 1}}
    assert service.delete("s") == {"study": "s", "trials": 1}
    import optuna

    assert optuna.get_all_study_names(f"sqlite:///{tmp_path / 'tightfit.db'}") == []
