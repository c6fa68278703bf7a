"""A real PostgreSQL that cuts, refuses, restarts and deadlocks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg2
import pytest
from postgres import PASSWORD, Server, private_server
from sqlalchemy import text, update
from sqlalchemy.orm import Session

from storage import runs, studies, trials
from storage.database import Database
from storage.errors import StorageError, StoreUnavailable
from storage.models import Study
from storage.schema import REVISIONS


def connections(server: Server, database: Database) -> list[str]:
    """Names of a database's connections, as the server sees them."""
    statement = "SELECT application_name FROM pg_stat_activity WHERE datname = %s"
    return [row[0] for row in server.execute(statement, (database.url.database,))]


@pytest.mark.case("G05")
def test_connections_cut_between_calls_are_noticed(postgres_server: Server, postgres_database: Database) -> None:
    study = studies.create(postgres_database, name="cut", spec={}, identity={})
    assert postgres_server.cut_connections(str(postgres_database.url.database)) >= 1
    assert studies.get(postgres_database, study.id) == study
    postgres_server.cut_connections(str(postgres_database.url.database))
    assert studies.add_seconds(postgres_database, study.id, 1.0).seconds == 1.0


@pytest.mark.case("G05")
def test_a_connection_cut_inside_a_transaction_costs_nothing(
    postgres_server: Server, postgres_database: Database
) -> None:
    study = studies.create(postgres_database, name="cut", spec={}, identity={})
    attempts: list[int] = []

    def work(session: Session) -> None:
        attempts.append(1)
        session.execute(update(Study).values(seconds=Study.seconds + 1))
        if len(attempts) == 1:
            postgres_server.cut_connections(str(postgres_database.url.database))
        session.execute(update(Study).values(seconds=Study.seconds + 1))

    postgres_database.write(work)
    assert len(attempts) == 2
    assert studies.get(postgres_database, study.id).seconds == 2.0


@pytest.mark.case("G05")
def test_a_connection_cut_before_commit(postgres_server: Server, postgres_database: Database) -> None:
    """Nobody knows then whether it happened: only work that may be done twice is done again."""
    study = studies.create(postgres_database, name="cut", spec={}, identity={})

    def cut_at_the_end(attempts: list[int]) -> None:
        def work(session: Session) -> None:
            session.execute(update(Study).values(seconds=5.0))
            attempts.append(1)
            if len(attempts) == 1:
                postgres_server.cut_connections(str(postgres_database.url.database))

        postgres_database.write(work, repeatable=repeatable)

    repeatable, attempts = True, []
    cut_at_the_end(attempts)
    assert (len(attempts), studies.get(postgres_database, study.id).seconds) == (2, 5.0)
    repeatable, attempts = False, []
    with pytest.raises(StoreUnavailable):
        cut_at_the_end(attempts)
    assert len(attempts) == 1


def test_results_survive_connections_that_are_cut_all_the_time(
    postgres_server: Server, postgres_database: Database
) -> None:
    study = studies.create(postgres_database, name="storm", spec={}, identity={})
    over = threading.Event()

    def storm() -> None:
        while not over.wait(0.05):
            postgres_server.cut_connections(str(postgres_database.url.database))

    thread = threading.Thread(target=storm)
    thread.start()
    try:
        for number in range(20):
            runs.start(postgres_database, id=f"run {number}", study_id=study.id, purpose="search")
            runs.record_end(postgres_database, id=f"run {number}", outcome="completed", run={"throughput": number})
            time.sleep(0.02)
    finally:
        over.set()
        thread.join()
    stored = runs.list_of(postgres_database, study_id=study.id)
    assert [(run.outcome, run.throughput) for run in stored] == [("completed", number) for number in range(20)]


@pytest.mark.case("G07")
def test_a_deadlock_is_tried_again(postgres_database: Database) -> None:
    made = [studies.create(postgres_database, name=name, spec={}, identity={}).id for name in ("a", "b")]
    both_hold_one = threading.Barrier(2, timeout=20)
    first = threading.local()

    def crosswise(order: list[int]) -> None:
        def work(session: Session) -> None:
            for position, study_id in enumerate(order):
                session.execute(update(Study).where(Study.id == study_id).values(seconds=Study.seconds + 1))
                if position == 0 and not hasattr(first, "seen"):
                    first.seen = True
                    both_hold_one.wait()

        postgres_database.write(work)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(crosswise, [made, made[::-1]]))
    assert [studies.get(postgres_database, study_id).seconds for study_id in made] == [2.0, 2.0]


@pytest.mark.case("G04")
def test_connections_are_few_and_named(postgres_server: Server, postgres_database: Database) -> None:
    study = studies.create(postgres_database, name="busy", spec={}, identity={})
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda _: studies.add_seconds(postgres_database, study.id, 1.0), range(60)))
        found = connections(postgres_server, postgres_database)
    assert len(found) <= 3
    assert set(found) == {"tuner-tests"}
    assert studies.get(postgres_database, study.id).seconds == 60.0


def test_nothing_stays_idle_inside_a_transaction(postgres_server: Server, postgres_database: Database) -> None:
    study = studies.create(postgres_database, name="quiet", spec={}, identity={})
    trials.list_of(postgres_database, study.id)
    with postgres_database.lock("held"):
        statement = "SELECT state FROM pg_stat_activity WHERE datname = %s"
        states = postgres_server.execute(statement, (postgres_database.url.database,))
    assert {state for (state,) in states} == {"idle"}


class TestRefusals:
    """What a person reads when the server refuses: its own words, a way out, no secret."""

    def refusal(self, url: str) -> str:
        database = Database.open(url)
        with pytest.raises(StorageError) as caught:
            studies.list_all(database)
        database.close()
        shown = f"{caught.value} {caught.value!r} {database!r}"
        assert PASSWORD not in shown
        assert "wrong" not in shown
        return str(caught.value)

    @pytest.mark.case("G04")
    def test_a_wrong_password(self, postgres_server: Server, postgres_database: Database) -> None:
        wrong = postgres_database.url.set(password="wrong!").render_as_string(hide_password=False)
        assert "password authentication failed for user" in self.refusal(wrong)

    @pytest.mark.case("G04")
    def test_a_missing_database(self, postgres_server: Server) -> None:
        assert 'database "nowhere" does not exist; create it' in self.refusal(postgres_server.url("nowhere"))

    def test_an_empty_database(self, empty_postgres_url: str) -> None:
        assert "run `tuner db migrate`" in self.refusal(empty_postgres_url)

    @pytest.mark.case("G04")
    def test_no_server_at_all(self, postgres_database: Database) -> None:
        nobody = postgres_database.url.set(port=1).render_as_string(hide_password=False)
        assert "Connection refused" in self.refusal(nobody)


@pytest.fixture(scope="module")
def small_server() -> Iterator[Server]:
    """A server that takes five connections, one of them a superuser's."""
    with private_server(max_connections="5", superuser_reserved_connections="1") as server:
        yield server


@pytest.mark.case("G04")
def test_too_many_clients(small_server: Server) -> None:
    """Tried again for a moment; the server's own words when that does not help; fine as soon as there is room."""
    name = small_server.create()
    others = [psycopg2.connect(small_server.url(name).replace("+psycopg2", "")) for _ in range(5)]
    database = Database.open(small_server.url(name))
    try:
        with pytest.raises(StoreUnavailable, match="sorry, too many clients already; raise max_connections"):
            database.check()
        threading.Timer(0.3, lambda: [other.close() for other in others]).start()
        assert database.check() == "missing"
    finally:
        database.close()
        for other in others:
            other.close()


def test_a_store_that_was_not_there_when_it_was_opened(postgres_server: Server) -> None:
    database = Database.open(postgres_server.url("tuner_test_later"))
    with pytest.raises(StoreUnavailable):
        database.prepare()
    postgres_server.execute("CREATE DATABASE tuner_test_later TEMPLATE template0 ENCODING 'UTF8'")
    try:
        database.prepare()
        assert database.check() == "current"
    finally:
        database.close()
        postgres_server.drop("tuner_test_later")


def test_an_old_shared_store_is_not_changed_unasked(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.schema.REVISIONS", (*REVISIONS, "9999"))
    assert postgres_database.check() == "old"
    with pytest.raises(StorageError, match="older version: run `tuner db migrate`"):
        postgres_database.prepare()


def test_a_user_who_may_not_create_tables(postgres_server: Server, empty_postgres_url: str) -> None:
    postgres_server.execute("DROP ROLE IF EXISTS tuner_guest")
    postgres_server.execute("CREATE ROLE tuner_guest LOGIN PASSWORD 'guest pw'")
    opened = Database.open(empty_postgres_url)
    with opened.transaction() as session:
        session.execute(text("REVOKE ALL ON SCHEMA public FROM PUBLIC"))
    guest = Database(opened.url.set(username="tuner_guest", password="guest pw"))
    with pytest.raises(StoreUnavailable, match=r"permission denied|no schema has been selected"):
        guest.prepare()
    for database in (opened, guest):
        database.close()
    postgres_server.execute("DROP ROLE tuner_guest")
