"""Leases by the database's clock: heartbeats, what dead workers leave, and who may declare it lost."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from storage import queue, recovery, runs, studies, trials, workers
from storage.clock import clock, server_started
from storage.database import Database
from storage.errors import AlreadyFinished, NotFound
from storage.models import Run, Worker
from storage.records import Recovered, RunRecord, StudyRecord, TrialRecord, WorkerRecord

LEASE_SECONDS = 2.0
"""Soon shorter than the test server has been up (:func:`database`)."""


@pytest.fixture
def database(emptied_database: Database) -> Database:
    deadline = time.monotonic() + LEASE_SECONDS
    while time.monotonic() < deadline and not _is_up_for_a_lease(emptied_database):
        time.sleep(0.05)
    return emptied_database


def _is_up_for_a_lease(database: Database) -> bool:
    def seconds(session: Session) -> float:
        started = server_started(session)
        return LEASE_SECONDS + 1 if started is None else (clock(session) - started).total_seconds()

    return database.read(seconds) > LEASE_SECONDS


def recover(database: Database, by: WorkerRecord) -> Recovered:
    """As a worker does it: right after its heartbeat."""
    workers.beat(database, by.id)
    return recovery.recover(database, by.id)


def new_id() -> str:
    return str(uuid.uuid4())


def make_worker(database: Database, **values: object) -> WorkerRecord:
    given = {
        "host": "gpu-07", "pid": 77, "device_kind": "cuda", "device_name": "H200", "total_memory_bytes": 2**37,
        "lease_seconds": LEASE_SECONDS, **values,
    }  # fmt: skip
    return workers.register(database, id=new_id(), **given)


def make_run(database: Database, worker: WorkerRecord) -> tuple[StudyRecord, TrialRecord, RunRecord]:
    """A study that the worker has claimed, with one trial running."""
    queue.submit(database, name=new_id(), spec={}, identity={})
    study = queue.claim_study(database, worker.id)
    assert study is not None
    return (study, *start(database, worker, study))


def start(database: Database, worker: WorkerRecord, study: StudyRecord) -> tuple[TrialRecord, RunRecord]:
    trial = trials.reserve(database, study_id=study.id, config={}, config_key="", source="tpe", worker_id=worker.id)
    assert trial is not None
    run = runs.start(database, id=new_id(), study_id=study.id, trial_id=trial.id, purpose="search", worker_id=worker.id)
    return trial, run


def silence(database: Database, *people: WorkerRecord, seconds: float = 100) -> None:
    """As if nothing had been heard of these workers and their runs for a while."""
    past = timedelta(seconds=seconds)
    with database.transaction() as session:
        for worker in people:
            early = worker.heartbeat_at - past
            session.execute(update(Worker).where(Worker.id == worker.id).values(heartbeat_at=early))
            session.execute(update(Run).where(Run.worker_id == worker.id).values(heartbeat_at=early))


def judge(database: Database, *, steady_seconds: float = 100, **values: object) -> WorkerRecord:
    """A worker that has been in contact for so long and has spoken just now."""
    made = make_worker(database, **values)
    since = made.steady_since - timedelta(seconds=steady_seconds)
    with database.transaction() as session:
        session.execute(update(Worker).where(Worker.id == made.id).values(steady_since=since))
    workers.beat(database, made.id)
    return made


class TestHeartbeat:
    def test_a_worker_comes_back_as_it_was_registered(self, database: Database) -> None:
        made = make_worker(database, device_uuid="GPU-1", threads=4, cores=(0, 1), facts={"torch": "2.13"})
        assert made == workers.get(database, made.id)
        assert (made.status, made.cores, made.facts, made.ended_at) == ("idle", (0, 1), {"torch": "2.13"}, None)
        assert workers.list_all(database) == workers.list_all(database, host="gpu-07") == (made,)
        assert workers.list_all(database, host="other") == ()

    def test_a_heartbeat_renews_the_worker_and_its_open_runs(self, database: Database) -> None:
        worker = make_worker(database)
        study, _, run = make_run(database, worker)
        before = studies.get(database, study.id).version
        silence(database, worker)
        heard = workers.beat(database, worker.id, runs=(run.id, "unknown"))
        assert heard.worker.heartbeat_at > worker.heartbeat_at
        assert runs.get(database, run.id).heartbeat_at == heard.worker.heartbeat_at
        assert heard.taken_away == ("unknown",)
        assert (heard.study_status, heard.study_version) == ("running", before)

    def test_it_hears_what_people_did_with_its_study(self, database: Database) -> None:
        worker = make_worker(database)
        study, _, run = make_run(database, worker)
        queue.pause(database, study.name)
        assert workers.beat(database, worker.id, runs=(run.id,)).study_status == "paused"
        queue.delete(database, study.name)
        heard = workers.beat(database, worker.id, runs=(run.id,))
        assert (heard.study_status, heard.taken_away, heard.worker.study_id) == (None, (run.id,), None)

    def test_silence_ends_steadiness(self, database: Database) -> None:
        worker = judge(database)
        steady = workers.beat(database, worker.id).worker.steady_since
        silence(database, worker, seconds=LEASE_SECONDS * 0.6)
        assert workers.beat(database, worker.id).worker.steady_since > steady

    def test_nobody(self, database: Database) -> None:
        for act in (workers.beat, workers.retire, workers.drain, workers.note_fine, workers.release, workers.get):
            with pytest.raises(NotFound, match="nobody"):
                act(database, "nobody")


class TestRecovery:
    @pytest.mark.case("G01", "G02")
    def test_what_a_dead_worker_leaves_is_declared_lost_once(self, database: Database) -> None:
        dead, alive = make_worker(database), judge(database)
        study, trial, run = make_run(database, dead)
        silence(database, dead)
        first, second = recover(database, alive), recover(database, alive)
        assert first == Recovered(workers=(dead.id,), runs=(run.id,), trials=(trial.id,))
        assert second == Recovered()
        lost = runs.get(database, run.id)
        assert (lost.outcome, lost.cause, lost.confidence) == ("infra", "worker_lost", "certain")
        assert trials.get(database, trial.id).outcome is None
        assert studies.get(database, study.id).status == "queued"
        gone = workers.get(database, dead.id)
        assert gone.status == "gone"
        assert "2 s" in str(gone.reason)

    @pytest.mark.case("G01")
    def test_the_trial_is_run_again_elsewhere_under_its_number(self, database: Database) -> None:
        dead, alive = make_worker(database), judge(database)
        study, trial, run = make_run(database, dead)
        assert trials.take_over(database, study_id=study.id, worker_id=alive.id) is None
        silence(database, dead)
        recover(database, alive)
        taken = trials.take_over(database, study_id=study.id, worker_id=alive.id)
        assert taken is not None
        assert (taken.number, taken.worker_id) == (trial.number, alive.id)
        again = runs.start(
            database, id=new_id(), study_id=study.id, trial_id=trial.id, purpose="search", attempt=2,
            worker_id=alive.id,
        )  # fmt: skip
        assert [(each.id, each.outcome) for each in runs.attempts(database, trial.id)] == [
            (run.id, "infra"), (again.id, None),
        ]  # fmt: skip

    def test_a_run_that_comes_back_late_harms_nobody(self, database: Database) -> None:
        dead, alive = make_worker(database), judge(database)
        _, trial, run = make_run(database, dead)
        silence(database, dead)
        recover(database, alive)
        heard = workers.beat(database, dead.id, runs=(run.id,))
        assert (heard.worker.status, heard.taken_away) == ("gone", (run.id,))
        with pytest.raises(AlreadyFinished, match="infra"):
            runs.record_end(database, id=run.id, outcome="completed", trial_id=trial.id)
        runs.keep_late(database, run.id, result={"throughput": 9.0})
        kept = runs.get(database, run.id)
        assert (kept.outcome, kept.throughput, kept.evidence["late"]) == ("infra", None, {"throughput": 9.0})
        assert trials.get(database, trial.id).outcome is None

    def test_the_living_keep_what_they_have(self, database: Database) -> None:
        alive, other = judge(database), make_worker(database, lease_seconds=60)
        _, _, run = make_run(database, other)
        workers.beat(database, other.id, runs=(run.id,))
        assert recover(database, alive) == Recovered()

    def test_a_run_its_living_worker_does_not_name(self, database: Database) -> None:
        """A thread that died in a worker whose heart beats on."""
        alive, forgetful = judge(database), make_worker(database)
        study, forgotten, run = make_run(database, forgetful)
        _, named = start(database, forgetful, study)
        silence(database, forgetful)
        workers.beat(database, forgetful.id, runs=(named.id,))
        found = recover(database, alive)
        assert (found.workers, found.runs, found.trials) == ((), (run.id,), ())
        assert trials.get(database, forgotten.id).worker_id == forgetful.id

    def test_what_a_retired_worker_left_is_free_at_once(self, database: Database) -> None:
        leaving, alive = make_worker(database, lease_seconds=3600), judge(database)
        _, trial, run = make_run(database, leaving)
        workers.retire(database, leaving.id, reason="SIGTERM")
        assert recover(database, alive) == Recovered(runs=(run.id,), trials=(trial.id,))

    def test_tuner_runs_own_runs_are_left_alone(self, database: Database) -> None:
        alive = judge(database)
        study = studies.create(database, name="mine", spec={}, identity={})
        studies.set_status(database, study.id, "running")
        runs.start(database, id="mine", study_id=study.id, purpose="estimate")
        assert recover(database, alive) == Recovered()
        assert studies.get(database, study.id).status == "running"

    def test_whoever_was_out_of_contact_is_no_judge_yet(self, database: Database) -> None:
        """After an outage in which the server stayed up, all were silent: everybody gets a lease to come back."""
        other, alive = make_worker(database), judge(database)
        silence(database, other, alive)
        assert recover(database, alive) == Recovered()
        assert workers.get(database, other.id).status == "idle"

    def test_nothing_is_taken_before_the_server_has_been_up_for_a_lease(self, postgres_database: Database) -> None:
        """No test server has been up for a day."""
        day = 86_400.0
        dead = make_worker(postgres_database, lease_seconds=day)
        alive = judge(postgres_database, lease_seconds=day, steady_seconds=10 * day)
        silence(postgres_database, dead, seconds=10 * day)
        assert recovery.recover(postgres_database, alive.id) == Recovered()

    def test_an_embedded_store_has_no_server_to_wait_for(self, sqlite_database: Database) -> None:
        day = 86_400.0
        dead = make_worker(sqlite_database, lease_seconds=day)
        alive = judge(sqlite_database, lease_seconds=day, steady_seconds=10 * day)
        silence(sqlite_database, dead, seconds=10 * day)
        assert recovery.recover(sqlite_database, alive.id).workers == (dead.id,)

    def test_the_dead_judge_nobody(self, database: Database) -> None:
        dead, ghost = make_worker(database), judge(database)
        silence(database, dead)
        workers.retire(database, ghost.id)
        assert recovery.recover(database, ghost.id) == Recovered()
        silent = judge(database)
        silence(database, silent)
        assert recovery.recover(database, silent.id) == Recovered()

    def test_many_judges_at_once_find_each_thing_once(self, database: Database) -> None:
        dead = [make_worker(database) for _ in range(4)]
        left = [make_run(database, worker) for worker in dead]
        judges = [judge(database) for _ in range(4)]
        silence(database, *dead)
        stores = [Database(database.url) for _ in judges]
        for each in judges:
            workers.beat(database, each.id)
        with ThreadPoolExecutor(len(judges)) as pool:
            found = list(pool.map(lambda pair: recovery.recover(pair[0], pair[1].id), zip(stores, judges, strict=True)))
        for store in stores:
            store.close()
        assert sorted(id for each in found for id in each.workers) == sorted(worker.id for worker in dead)
        assert sorted(id for each in found for id in each.runs) == sorted(run.id for _, _, run in left)
        assert sorted(id for each in found for id in each.trials) == sorted(trial.id for _, trial, _ in left)

    def test_a_worker_that_speaks_again_in_time_is_not_taken(self, database: Database) -> None:
        slow, alive = make_worker(database), judge(database)
        _, _, run = make_run(database, slow)
        silence(database, slow)
        seen = workers.get(database, slow.id)
        workers.beat(database, slow.id, runs=(run.id,))
        assert recovery._end(database, seen) is False
        assert recover(database, alive) == Recovered()


class TestQuarantine:
    def test_repeated_infra_takes_a_device_out_of_service(self, database: Database) -> None:
        worker = make_worker(database, device_uuid="GPU-1")
        for _ in range(workers.QUARANTINE_AFTER - 1):
            assert workers.note_infra(database, worker.id, "Xid 79").status == "idle"
        held = workers.note_infra(database, worker.id, "Xid 79")
        assert held.status == "quarantined"
        assert "Xid 79" in str(held.reason)
        queue.submit(database, name="waiting", spec={}, identity={})
        assert queue.claim_study(database, worker.id) is None
        assert workers.release(database, worker.id).status == "idle"
        assert queue.claim_study(database, worker.id) is not None

    def test_a_run_that_ends_well_counts_from_0_again(self, database: Database) -> None:
        worker = make_worker(database)
        for _ in range(4):
            workers.note_infra(database, worker.id, "busy")
            assert workers.note_fine(database, worker.id).infra_in_a_row == 0
        assert workers.get(database, worker.id).status == "idle"

    def test_starting_again_does_not_make_a_broken_device_whole(self, database: Database) -> None:
        first = make_worker(database, device_uuid="GPU-1")
        workers.quarantine(database, first.id, "a person said so")
        assert workers.retire(database, first.id).status == "quarantined"
        second = make_worker(database, device_uuid="GPU-1")
        assert (second.status, second.reason) == ("quarantined", "a person said so")
        assert make_worker(database, device_uuid="GPU-2").status == "idle"
        assert make_worker(database, device_uuid="GPU-1", host="other").status == "idle"
        workers.release(database, second.id)
        assert make_worker(database, device_uuid="GPU-1").status == "idle"

    def test_infra_is_counted_across_restarts(self, database: Database) -> None:
        first = make_worker(database, device_uuid="GPU-1")
        workers.note_infra(database, first.id, "Xid 79")
        assert make_worker(database, device_uuid="GPU-1").infra_in_a_row == 1

    def test_old_ones_are_forgotten_and_their_runs_stay(self, database: Database) -> None:
        old, held, alive = (make_worker(database) for _ in range(3))
        _, _, run = make_run(database, old)
        workers.quarantine(database, held.id, "broken")
        for worker in (old, held):
            workers.retire(database, worker.id)
        assert workers.forget(database, older_than_seconds=60) == 0
        assert workers.forget(database, older_than_seconds=-1) == 1
        assert {worker.id for worker in workers.list_all(database, ended=True)} == {held.id, alive.id}
        assert runs.get(database, run.id).worker_id == old.id
