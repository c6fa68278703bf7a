"""Optuna's own tools see every finished trial, on SQLite and on PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import optuna
import pytest
from sqlalchemy import text

from storage import studies, trials
from storage.database import Database
from storage.records import StudyRecord
from tuner.errors import StoreError
from tuner.search.projection import Projection

LIMIT = 100
SPEC = {"search": {"micro_batch_size": [2, 4, 8], "precision": ["fp32", "bf16-mixed"], "pin_memory": [False, True]}}
BASELINE = {"micro_batch_size": 1, "precision": "fp32", "pin_memory": False, "compile": "off"}


@pytest.fixture
def study(database: Database) -> StudyRecord:
    made = studies.create(database, name="llama 1b/4k é", spec=SPEC, identity={})
    studies.set_facts(database, made.id, {}, memory_limit_bytes=LIMIT)
    add(database, made, "completed", 10.0, 50, **BASELINE)
    return studies.get(database, made.id)


def add(
    database: Database,
    study: StudyRecord,
    outcome: str | None,
    throughput: float | None,
    peak: int | None,
    **knobs: object,
) -> int:
    config = {"micro_batch_size": 2, "precision": "fp32", "pin_memory": True, "compile": "off", **knobs}
    trial = trials.reserve(database, study_id=study.id, config=config, config_key="", source="tpe")
    assert trial is not None
    if outcome is not None:
        trials.finish(database, trial.id, outcome=outcome, throughput=throughput, peak_memory_bytes=peak)
    return trial.id


@contextmanager
def opened(database: Database, study: StudyRecord) -> Iterator[optuna.Study]:
    """What a person's own script sees."""
    storage = optuna.storages.RDBStorage(Projection(database).url())
    try:
        yield optuna.load_study(study_name=study.name, storage=storage)
    finally:
        storage.remove_session()
        storage.engine.dispose()


def test_optuna_sees_params_values_constraint_and_the_front(database: Database, study: StudyRecord) -> None:
    add(database, study, "completed", 20.0, 90, micro_batch_size=4)
    add(database, study, "completed", 90.0, 120, micro_batch_size=8)  # measured, but over the limit
    add(database, study, "device_oom", None, None, micro_batch_size=8, precision="bf16-mixed")
    add(database, study, "pruned", 15.0, 95)
    add(database, study, "crashed", None, None)
    add(database, study, None, None, None)
    assert Projection(database).heal(study.id) == 6
    with opened(database, study) as shown:
        states = [trial.state.name for trial in shown.trials]
        assert states == ["COMPLETE"] * 5 + ["FAIL"]
        assert shown.trials[1].params == {"micro_batch_size": 4, "precision": "fp32", "pin_memory": True}
        assert [trial.values for trial in shown.trials[:5]] == [[10, 50], [20, 90], [90, 120], [0, 100], [15, 95]]
        assert [trial.constraints.get("fits") for trial in shown.trials] == [-0.5, -0.1, 0.2, 1.0, -0.05, None]
        assert {trial.number for trial in shown.best_trials} == {0, 1}
        assert [trial.user_attrs["outcome"] for trial in shown.trials][3:] == ["device_oom", "pruned", "crashed"]
        assert shown.metric_names == ["throughput", "peak_memory_bytes"]


def test_a_baseline_outside_the_space_is_shown_with_its_params(database: Database, study: StudyRecord) -> None:
    add(database, study, "completed", 20.0, 90)
    Projection(database).heal(study.id)
    with opened(database, study) as shown:
        assert shown.trials[0].params == {"micro_batch_size": 1, "precision": "fp32", "pin_memory": False}
        assert shown.trials[0].distributions["micro_batch_size"].choices == (2, 4, 8, 1)
        assert shown.ask().suggest_categorical("micro_batch_size", (2, 4, 8, 1)) in (1, 2, 4, 8)


def test_healing_adds_only_what_is_missing(database: Database, study: StudyRecord) -> None:
    projection, another = Projection(database), Projection(database)
    late = add(database, study, None, None, None)
    add(database, study, "completed", 20.0, 90)
    assert [projection.heal(study.id), projection.heal(study.id), another.heal(study.id)] == [2, 0, 0]
    trials.finish(database, late, outcome="timeout")
    assert [another.heal(study.id), projection.heal(study.id)] == [1, 0]
    with opened(database, study) as shown:
        assert [trial.user_attrs["number"] for trial in shown.trials] == [0, 2, 1]


def test_many_at_once_add_each_trial_once(database: Database, study: StudyRecord) -> None:
    for _ in range(5):
        add(database, study, "completed", 20.0, 90)
    with ThreadPoolExecutor(3) as pool:
        stores = [Database(database.url) for _ in range(3)]
        added = list(pool.map(lambda store: Projection(store).heal(study.id), stores))
    for store in stores:
        store.close()
    assert sum(added) == 6
    with opened(database, study) as shown:
        assert sorted(trial.user_attrs["number"] for trial in shown.trials) == list(range(6))


def test_further_windows_are_shown_at_the_next_healing(database: Database, study: StudyRecord) -> None:
    trial = add(database, study, "completed", 20.0, 90)
    projection = Projection(database)
    projection.heal(study.id)
    assert projection.heal(study.id) == 0
    trials.update_fields(database, trial, throughput=25.0, windows=2)
    assert [projection.heal(study.id), projection.heal(study.id)] == [1, 0]
    with opened(database, study) as shown:
        assert shown.trials[1].values == [25.0, 90.0]


def test_rebuilding_replaces_what_was_there(database: Database, study: StudyRecord) -> None:
    projection, another = Projection(database), Projection(database)
    another.heal(study.id)
    with opened(database, study) as shown:
        shown.ask()  # somebody played with it
    assert projection.rebuild(study.id) == 1
    assert another.heal(study.id) == 0
    with opened(database, study) as shown:
        assert [trial.state.name for trial in shown.trials] == ["COMPLETE"]


def test_times_are_the_trials_own(database: Database, study: StudyRecord) -> None:
    Projection(database).heal(study.id)
    ours = trials.list_of(database, study.id)[0]
    with opened(database, study) as shown:
        assert shown.trials[0].datetime_start is not None
        assert abs(shown.trials[0].datetime_start.astimezone() - ours.created_at) < timedelta(seconds=1)


def test_a_deleted_study_can_be_deleted_there(database: Database, study: StudyRecord) -> None:
    projection = Projection(database)
    projection.heal(study.id)
    projection.delete(study.name)
    projection.delete(study.name)
    with pytest.raises(KeyError), opened(database, study):
        pass


@pytest.mark.case("G08")
def test_another_tools_version_table_is_no_hindrance(postgres_database: Database) -> None:
    with postgres_database.transaction() as session:
        session.execute(text("CREATE TABLE alembic_version (version_num varchar(32) NOT NULL)"))
        session.execute(text("INSERT INTO alembic_version VALUES ('zzz')"))
    assert postgres_database.migrate() == "current"
    study = studies.create(postgres_database, name="beside mlflow", spec=SPEC, identity={})
    add(postgres_database, study, "crashed", None, None, **BASELINE)
    assert Projection(postgres_database).heal(study.id) == 1
    with opened(postgres_database, study) as shown:
        assert len(shown.trials) == 1
    versions = text("SELECT version_num FROM public.alembic_version")
    assert postgres_database.read(lambda session: session.scalar(versions)) == "zzz"


def test_optunas_tables_of_a_foreign_version_are_said_so(sqlite_database: Database) -> None:
    with sqlite_database.transaction() as session:
        session.execute(text("CREATE TABLE alembic_version (version_num varchar(32) NOT NULL)"))
        session.execute(text("INSERT INTO alembic_version VALUES ('zzz')"))
    study = studies.create(sqlite_database, name="beside mlflow", spec=SPEC, identity={})
    add(sqlite_database, study, "crashed", None, None, **BASELINE)
    with pytest.raises(StoreError, match=r"Optuna's tables in .*tuner\.db"):
        Projection(sqlite_database).heal(study.id)


def test_it_holds_no_connection_between_calls(postgres_database: Database) -> None:
    study = studies.create(postgres_database, name="quiet", spec=SPEC, identity={})
    Projection(postgres_database).heal(study.id)
    statement = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tuner-optuna'")
    deadline = time.monotonic() + 10
    while postgres_database.read(lambda session: session.scalar(statement)):
        assert time.monotonic() < deadline, "a connection of Optuna's is still open"
        time.sleep(0.02)
