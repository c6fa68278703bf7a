"""The queue: who gets what, what people may do, and who wakes up when."""

from __future__ import annotations

import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from postgres import Server
from sqlalchemy import text

from storage import queue, runs, studies, trials, wakeups, workers
from storage.database import Database
from storage.engines import IDLE_SECONDS
from storage.errors import NameTaken, NotAllowed, NotFound
from storage.records import StudyRecord, StudyStatus, WorkerRecord
from storage.rows import change_study
from storage.wakeups import Wakeups


@pytest.fixture
def database(emptied_database: Database) -> Database:
    return emptied_database


def make_worker(database: Database, **values: object) -> WorkerRecord:
    given = {
        "host": "gpu-07", "pid": 77, "device_kind": "cuda", "device_name": "H200", "total_memory_bytes": 141 * 2**30,
        **values,
    }  # fmt: skip
    return workers.register(database, id=str(uuid.uuid4()), **given)


def submit(database: Database, name: str, **values: object) -> StudyRecord:
    return queue.submit(database, name=name, spec={"limits": {}}, identity={}, **values)


class TestClaims:
    def test_by_priority_and_then_in_order(self, database: Database) -> None:
        for name, priority in (("first", 0), ("second", 0), ("urgent", 5), ("later", -1)):
            submit(database, name, priority=priority)
        worker = make_worker(database)
        order, seen = [], set()
        while (study := queue.claim_study(database, worker.id, skip=seen)) is not None:
            order.append(study.name)
            seen.add(study.id)
        assert order == ["urgent", "first", "second", "later"]

    def test_a_claim_marks_study_and_worker(self, database: Database) -> None:
        made, worker = submit(database, "one"), make_worker(database)
        study = queue.claim_study(database, worker.id)
        assert study is not None
        assert (study.id, study.status, study.device) == (made.id, "running", "H200")
        assert study.version > made.version
        at_it = workers.list_all(database, study_id=study.id)
        assert [(each.id, each.status) for each in at_it] == [(worker.id, "working")]

    def test_several_workers_of_one_kind_share_a_study(self, database: Database) -> None:
        submit(database, "one")
        claimed = [queue.claim_study(database, make_worker(database).id) for _ in range(3)]
        assert {study and study.name for study in claimed} == {"one"}

    def test_a_front_never_mixes_device_kinds(self, database: Database) -> None:
        """Whoever comes first settles it, whatever comes at once."""
        for number in range(6):
            submit(database, f"study {number}")
        made = [make_worker(database, device_name=name) for name in ("H200", "A100") for _ in range(3)]
        stores = [Database(database.url) for _ in made]
        with ThreadPoolExecutor(len(made)) as pool:
            claimed = list(
                pool.map(lambda pair: queue.claim_study(pair[0], pair[1].id), zip(stores, made, strict=True))
            )
        for store in stores:
            store.close()
        for worker, study in zip(made, claimed, strict=True):
            assert study is not None
            assert study.device == worker.device_name == studies.get(database, study.id).device

    @pytest.mark.parametrize(
        ("needs", "gets_it"),
        [
            ({}, True),
            ({"device_kind": "cuda"}, True),
            ({"device_kind": "cpu"}, False),
            ({"memory_bytes": 141 * 2**30}, True),
            ({"memory_bytes": 141 * 2**30 + 1}, False),
            ({"device_kind": "cuda", "memory_bytes": None}, True),
        ],
    )
    def test_what_a_study_needs(self, database: Database, needs: dict[str, object], gets_it: bool) -> None:
        made = submit(database, "one", needs=needs)
        assert made.needs == {name: value for name, value in needs.items() if value is not None}
        assert (queue.claim_study(database, make_worker(database).id) is not None) is gets_it

    def test_a_need_nobody_knows_is_our_own_mistake(self, database: Database) -> None:
        with pytest.raises(TypeError, match="colour"):
            submit(database, "one", needs={"colour": "green"})

    @pytest.mark.parametrize(
        "act", [workers.drain, workers.retire, lambda store, id: workers.quarantine(store, id, "")]
    )
    def test_who_gets_nothing(self, database: Database, act: object) -> None:
        submit(database, "one")
        worker = make_worker(database)
        act(database, worker.id)  # type: ignore[operator]
        assert queue.claim_study(database, worker.id) is None

    @pytest.mark.parametrize("status", ["paused", "finished", "failed", "cancelled"])
    def test_what_nobody_gets(self, database: Database, status: StudyStatus) -> None:
        studies.set_status(database, submit(database, "one").id, status)
        studies.create(database, name="tuner run's own", spec={}, identity={})
        assert queue.claim_study(database, make_worker(database).id) is None

    def test_the_last_to_leave_puts_it_back(self, database: Database) -> None:
        study = submit(database, "one")
        first, second = make_worker(database), make_worker(database)
        for worker in (first, second):
            queue.claim_study(database, worker.id)
        assert queue.leave_study(database, first.id).status == "idle"
        assert studies.get(database, study.id).status == "running"
        queue.leave_study(database, second.id)
        assert studies.get(database, study.id).status == "queued"
        assert queue.leave_study(database, second.id).study_id is None

    def test_leaving_changes_no_other_status(self, database: Database) -> None:
        study, worker = submit(database, "one"), make_worker(database)
        queue.claim_study(database, worker.id)
        studies.set_status(database, study.id, "finished", "40 trials are done")
        queue.leave_study(database, worker.id)
        assert studies.get(database, study.id).stop_reason == "40 trials are done"

    def test_a_refusal_is_shown_and_leaves_the_study_to_others(self, database: Database) -> None:
        study, worker = submit(database, "one"), make_worker(database)
        queue.claim_study(database, worker.id)
        queue.leave_study(database, worker.id, refusal="gpu-07 does not list the folder /data")
        waiting = studies.get(database, study.id)
        assert (waiting.status, waiting.device) == ("queued", None)
        assert "does not list" in str(waiting.stop_reason)
        taken = queue.claim_study(database, make_worker(database, device_name="A100").id)
        assert taken is not None
        assert (taken.device, taken.stop_reason) == ("A100", None)

    def test_a_refusal_after_measurements_keeps_the_device(self, database: Database) -> None:
        study, worker = submit(database, "one"), make_worker(database)
        queue.claim_study(database, worker.id)
        trials.reserve(database, study_id=study.id, config={}, config_key="", source="tpe")
        queue.leave_study(database, worker.id, refusal="no")
        assert studies.get(database, study.id).device == "H200"


class TestPeople:
    def test_pause_and_resume(self, database: Database) -> None:
        submit(database, "one")
        assert queue.pause(database, "one").status == "paused"
        assert queue.pause(database, "one").status == "paused"
        resumed = queue.resume(database, "one", priority=3)
        assert (resumed.status, resumed.stop_reason, resumed.priority) == ("queued", None, 3)
        assert queue.resume(database, "one") == resumed

    def test_cancelling_ends_it_and_resuming_takes_it_up_again(self, database: Database) -> None:
        submit(database, "one")
        ended = queue.cancel(database, "one")
        assert (ended.status, ended.finished_at is not None) == ("cancelled", True)
        again = queue.resume(database, "one")
        assert (again.status, again.finished_at) == ("queued", None)

    @pytest.mark.parametrize(
        ("act", "status", "way_out"),
        [
            (queue.pause, "finished", "nothing to pause"),
            (queue.pause, "cancelled", "tuner resume"),
            (queue.cancel, "finished", "tuner delete"),
            (queue.cancel, "failed", "tuner delete"),
            (queue.resume, "finished", "raise its limits"),
            (queue.delete, "running", "tuner cancel one"),
        ],
    )
    def test_what_is_not_allowed_names_the_status_and_the_way_out(
        self, database: Database, act: object, status: StudyStatus, way_out: str
    ) -> None:
        study = studies.set_status(database, submit(database, "one").id, status)
        with pytest.raises(NotAllowed, match=f"'one' is {status}: .*{way_out}"):
            act(database, "one")  # type: ignore[operator]
        assert studies.get(database, study.id) == study

    def test_a_finished_study_goes_on_with_other_limits(self, database: Database) -> None:
        studies.set_status(database, submit(database, "one").id, "finished", "done")
        again = queue.resume(database, "one", spec={"limits": {"trials": 80}})
        assert (again.status, again.spec, again.stop_reason) == ("queued", {"limits": {"trials": 80}}, None)

    def test_resuming_gives_tuner_runs_study_to_the_workers(self, database: Database) -> None:
        mine = studies.create(database, name="mine", spec={}, identity={})
        studies.set_status(database, mine.id, "paused")
        assert queue.resume(database, "mine").submitted_at is not None
        assert queue.claim_study(database, make_worker(database).id) is not None

    def test_a_worker_never_overwrites_what_a_person_set(self, database: Database) -> None:
        study, worker = submit(database, "one"), make_worker(database)
        queue.claim_study(database, worker.id)
        queue.cancel(database, "one")
        kept = studies.set_status(database, study.id, "finished", "all done", only_from=("running",))
        assert (kept.status, kept.stop_reason) == ("cancelled", "cancelled by a person")
        queue.leave_study(database, worker.id)
        assert studies.get(database, study.id).status == "cancelled"

    def test_deleting_a_running_study_by_force(self, database: Database) -> None:
        study, worker = submit(database, "one"), make_worker(database)
        queue.claim_study(database, worker.id)
        trial = trials.reserve(database, study_id=study.id, config={}, config_key="", source="tpe")
        assert trial is not None
        runs.start(database, id="r", study_id=study.id, trial_id=trial.id, purpose="search", worker_id=worker.id)
        queue.delete(database, "one", force=True)
        assert (studies.find(database, "one"), runs.list_of(database)) == (None, ())
        with pytest.raises(NotFound):
            runs.record_end(database, id="r", outcome="completed", trial_id=trial.id)
        assert workers.beat(database, worker.id, runs=("r",)).taken_away == ("r",)

    def test_names(self, database: Database) -> None:
        submit(database, "one")
        with pytest.raises(NameTaken, match="'one'"):
            submit(database, "one")
        for act in (queue.pause, queue.resume, queue.cancel, queue.delete):
            with pytest.raises(NotFound, match="'nobody'"):
                act(database, "nobody")


class TestWakeUps:
    def test_an_idle_worker_sees_a_submission_within_a_second(self, database: Database) -> None:
        worker, seen = make_worker(database), []

        def idle() -> None:
            with Wakeups(database) as waiting:
                while not seen:
                    study = queue.claim_study(database, worker.id)
                    seen.extend([] if study is None else [time.monotonic()])
                    waiting.wait(0 if study else 5)

        thread = threading.Thread(target=idle)
        thread.start()
        time.sleep(0.5)
        submitted = time.monotonic()
        submit(database, "one")
        thread.join(20)
        assert seen[0] - submitted < 1.0

    def test_nothing_happens_until_something_does(self, postgres_database: Database) -> None:
        with Wakeups(postgres_database) as waiting:
            assert waiting.wait(5) is True  # what came before it listened may have been missed
            assert waiting.wait(0.05) is False
            submit(postgres_database, "one")
            assert waiting.wait(5) is True
            assert waiting.wait(0.05) is False

    @pytest.mark.case("G05")
    def test_a_cut_connection_is_made_again(
        self, postgres_server: Server, postgres_database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(wakeups, "AGAIN_SECONDS", 0.1)
        with Wakeups(postgres_database) as waiting:
            waiting.wait(0)
            postgres_server.cut_connections(str(postgres_database.url.database))
            assert waiting.wait(5) is True
            time.sleep(0.15)
            assert waiting.wait(5) is True  # it listens again
            threading.Timer(0.1, lambda: submit(postgres_database, "one")).start()
            assert waiting.wait(10) is True
            assert waiting.wait(0.05) is False

    @pytest.mark.case("G04")
    def test_a_worker_has_two_connections_and_a_name(
        self, postgres_server: Server, postgres_database: Database
    ) -> None:
        url = postgres_database.url.render_as_string(hide_password=False)
        store = workers.open_store(url, host="gpu-07", device="cuda:0")
        worker = make_worker(store)
        study = submit(store, "one")
        with Wakeups(store) as waiting:
            waiting.wait(0)
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda _: workers.beat(store, worker.id), range(20)))
            studies.add_seconds(store, study.id, 1.0)
            statement = "SELECT application_name FROM pg_stat_activity WHERE datname = %s AND application_name <> %s"
            found = postgres_server.execute(statement, (store.url.database, "tuner-tests"))
        store.close()
        assert found == [("tuner worker gpu-07/cuda:0",)] * 2


def test_a_client_that_stops_inside_a_transaction_lets_go(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is stopped there must not keep a study's row from all others."""
    shown = text("SHOW idle_in_transaction_session_timeout")
    assert postgres_database.read(lambda session: session.scalar(shown)) == f"{IDLE_SECONDS}s"
    study = submit(postgres_database, "one")
    stopped = Database(postgres_database.url)
    with stopped.engine.connect() as connection:
        connection.execute(text("SET idle_in_transaction_session_timeout = '200ms'"))
        connection.commit()
        connection.execute(text("UPDATE tuner_study SET seconds = 99"))
        begun = time.monotonic()
        postgres_database.write(lambda session: change_study(session, study.id))
        assert time.monotonic() - begun < 5
        connection.invalidate()
    stopped.close()
    assert studies.get(postgres_database, study.id).seconds == 0.0
