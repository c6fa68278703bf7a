"""From every released version, with data in it, on SQLite and on PostgreSQL: nothing is lost, everything works."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import text
from sqlalchemy.orm import Session

import storage.migrations
from storage import queue, runs, studies, trials, workers
from storage.database import Database
from storage.errors import SchemaMismatch

WHEN = "2026-01-02 03:04:05.000006"
STUDY = """INSERT INTO tuner_study (name, status, spec, identity, facts, device, memory_limit_bytes, seconds, version,
trial_count, created_at) VALUES (:name, 'paused', '{"search": {"precision": ["fp32"]}}', '{}', '{"cores": 2}', 'H200',
1000, 12.5, 7, 3, :at)"""
TRIAL = """INSERT INTO tuner_trial (study_id, number, config, config_key, source, outcome, throughput,
peak_memory_bytes, windows, confirmed, metrics, evidence, seconds, created_at, finished_at)
VALUES ((SELECT max(id) FROM tuner_study), :number, '{"precision": "fp32"}', 'k', 'tpe', :outcome, 5.5, 900, 1, :no,
'{"mfu": 0.4}', '{}', 3.5, :at, :ended)"""
RUN = """INSERT INTO tuner_run (id, study_id, trial_id, purpose, attempt, outcome, evidence, seconds, measurement,
hardware, step_seconds, started_at, finished_at)
VALUES (:id, (SELECT max(id) FROM tuner_study), (SELECT max(id) FROM tuner_trial), 'search', 1, :outcome, '{}', 3.5,
'{}', '{}', '[0.1, 0.2]', :at, :ended)"""


def at_revision(database: Database, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(storage.migrations.__file__).parent))
    config.set_main_option("path_separator", "os")

    def upgrade(session: Session) -> None:
        config.attributes["connection"] = session.connection()
        command.upgrade(config, revision)

    database.write(upgrade)


def fill_0001(database: Database) -> None:
    """Two studies, each with an ended and an open trial and their runs, as that version wrote them."""
    with database.transaction() as session:
        for name in ("first", "größe 模型"):
            session.execute(text(STUDY), {"name": name, "at": WHEN})
            for number, outcome in enumerate(("completed", None)):
                ended = {"outcome": outcome, "at": WHEN, "ended": WHEN if outcome else None}
                session.execute(text(TRIAL), {"number": number, "no": False, **ended})
                session.execute(text(RUN), {"id": f"{name} {number}", **ended})


@pytest.fixture
def old(empty_url: str) -> Database:
    database = Database.open(empty_url)
    at_revision(database, "0001")
    fill_0001(database)
    return database


def test_an_old_store_is_refused_with_the_command_that_mends_it(old: Database) -> None:
    assert old.check() == "old"
    with pytest.raises(SchemaMismatch, match="older version: run `tuner db migrate`"):
        old.require_schema()
    old.close()


def test_from_0001_nothing_is_lost(old: Database) -> None:
    assert (old.migrate(), old.check()) == ("old", "current")
    assert [study.name for study in studies.list_all(old)] == ["größe 模型", "first"]
    for study in studies.list_all(old):
        assert (study.version, study.seconds, study.memory_limit_bytes, study.facts) == (7, 12.5, 1000, {"cores": 2})
        assert (study.priority, study.needs, study.submitted_at) == (0, {}, None)
        ended, open_one = trials.list_of(old, study.id)
        assert (ended.outcome, ended.throughput, ended.metrics) == ("completed", 5.5, {"mfu": 0.4})
        assert (open_one.outcome, open_one.worker_id) == (None, None)
        assert ended.created_at.isoformat() == "2026-01-02T03:04:05.000006+00:00"
        assert [(run.step_seconds, run.progress) for run in runs.list_of(old, study_id=study.id)] == [
            ((0.1, 0.2), None)
        ] * 2
    old.close()


def test_from_0001_everything_is_new_to_whoever_reads_for_the_first_time(old: Database) -> None:
    old.migrate()
    study = studies.list_all(old)[0]
    assert len(trials.changed_since(old, study.id, 0)) == len(runs.changed_since(old, study.id, 0)) == 2
    assert trials.changed_since(old, study.id, study.version) == ()
    old.close()


def test_from_0001_the_work_goes_on(old: Database) -> None:
    old.migrate()
    worker = workers.register(old, id="w", host="h", pid=1, device_kind="cuda", device_name="H200")
    assert queue.claim_study(old, worker.id) is None
    queue.resume(old, "first")
    study = queue.claim_study(old, worker.id)
    assert study is not None
    taken = trials.take_over(old, study_id=study.id, worker_id=worker.id)
    assert taken is not None
    assert [run.cause for run in runs.attempts(old, taken.id)] == ["worker_lost"]
    trials.finish(old, taken.id, outcome="completed")
    following = trials.reserve(old, study_id=study.id, config={}, config_key="", source="tpe")
    assert following is not None
    assert following.number == 3
    old.close()
