"""Many trials into Optuna's tables at once: the same rows that Optuna itself would write, changed ones in place."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import optuna
import pytest
from sqlalchemy import event, select
from sqlalchemy.engine import Engine

from storage import queue, studies, trials
from storage.database import Database
from storage.records import StudyRecord, TrialRecord
from tuner.search import optuna_rows, projection
from tuner.search.projection import TRIAL_ID, Projection

LIMIT = 100
SPEC = {"search": {"micro_batch_size": [2, 4, 8], "precision": ["fp32", "bf16-mixed"], "pin_memory": [False, True]}}
CONFIG = {"micro_batch_size": 4, "precision": "fp32", "pin_memory": True, "accumulation_steps": 2}
ENDS: tuple[tuple[str, float | None, int | None], ...] = (
    ("completed", 10.0, 50), ("completed", 1 / 3, 120), ("device_oom", None, None), ("pruned", 15.0, 95),
    ("crashed", None, None), ("infra", None, None), ("timeout", None, None),
)  # fmt: skip


@pytest.fixture
def study(database: Database) -> StudyRecord:
    made = studies.create(database, name="bulk é", spec=SPEC, identity={})
    studies.set_facts(database, made.id, {}, memory_limit_bytes=LIMIT)
    for end in ENDS:
        add(database, made, *end)
    return studies.get(database, made.id)


def add(
    database: Database, study: StudyRecord, outcome: str, throughput: float | None, peak: int | None
) -> TrialRecord:
    trial = trials.reserve(database, study_id=study.id, config=CONFIG, config_key="", source="tpe")
    assert trial is not None
    return trials.finish(database, trial.id, outcome=outcome, throughput=throughput, peak_memory_bytes=peak)


@pytest.fixture
def storage(database: Database) -> Iterator[optuna.storages.RDBStorage]:
    shown = Projection(database)
    shown.delete("makes the tables")
    opened = optuna.storages.RDBStorage(shown.url())
    yield opened
    opened.remove_session()
    opened.engine.dispose()


def rows_of(engine: Engine, name: str) -> dict[str, list[tuple[Any, ...]]]:
    """Everything Optuna's tables have on a study; ids replaced by trial numbers, our own mark of progress left out."""
    with engine.connect() as connection:
        study_id = connection.scalar(
            select(optuna_rows.STUDIES.c.study_id).where(optuna_rows.STUDIES.c.study_name == name)
        )
        heads = select(optuna_rows.TRIALS).where(optuna_rows.TRIALS.c.study_id == study_id)
        numbers = {row.trial_id: row.number for row in connection.execute(heads)}
        found = {"trials": sorted(tuple(row)[1:2] + tuple(row)[3:] for row in connection.execute(heads))}
        for table in optuna_rows.OF_A_TRIAL:
            columns = [each for each in table.c if not each.primary_key and each.name != "trial_id"]
            mine = select(table.c.trial_id, *columns).where(table.c.trial_id.in_(numbers))
            found[table.name] = sorted(
                (numbers[row[0]], *map(repr, row[1:])) for row in connection.execute(mine.order_by(table.c.trial_id))
            )
        for table in optuna_rows.OF_A_STUDY:
            columns = [each for each in table.c if not each.primary_key and each.name != "study_id"]
            mine = select(*columns).where(table.c.study_id == study_id)
            found[table.name] = sorted(
                tuple(map(repr, row)) for row in connection.execute(mine) if row[0] != projection.PROJECTED
            )
    return found


def test_the_rows_are_the_ones_optuna_writes(
    database: Database, study: StudyRecord, storage: optuna.storages.RDBStorage
) -> None:
    assert Projection(database).heal(study.id) == len(ENDS)
    theirs = optuna.create_study(storage=storage, study_name="theirs", directions=["maximize", "minimize"])
    with pytest.warns(optuna.exceptions.ExperimentalWarning):
        theirs.set_metric_names(["throughput", "peak_memory_bytes"])
    kinds = projection.distributions(projection.choices(study, trials.baseline(database, study.id)))
    for trial in trials.list_of(database, study.id):
        theirs.add_trial(projection.frozen_trial(trial, kinds, LIMIT))
    assert rows_of(storage.engine, study.name) == rows_of(storage.engine, "theirs")


def test_a_changed_trial_keeps_its_number_and_has_no_rows_twice(
    database: Database, study: StudyRecord, storage: optuna.storages.RDBStorage
) -> None:
    shown = Projection(database)
    shown.heal(study.id)
    changed = trials.list_of(database, study.id)[1]
    trials.update_fields(database, changed.id, throughput=30.0, peak_memory_bytes=80, windows=3)
    assert shown.heal(study.id) == 1
    seen = optuna.load_study(storage=storage, study_name=study.name).trials
    assert [trial.number for trial in seen] == list(range(len(ENDS)))
    assert (seen[1].values, seen[1].constraints["fits"]) == ([30.0, 80.0], -0.2)
    assert [trial.user_attrs[TRIAL_ID] for trial in seen] == [trial.id for trial in trials.list_of(database, study.id)]


def test_another_limit_is_told_to_all(
    database: Database, study: StudyRecord, storage: optuna.storages.RDBStorage
) -> None:
    shown = Projection(database)
    shown.heal(study.id)
    studies.set_facts(database, study.id, {}, memory_limit_bytes=200)
    assert shown.heal(study.id) == len(ENDS)
    seen = optuna.load_study(storage=storage, study_name=study.name).trials
    assert seen[1].constraints["fits"] == -0.4
    assert seen[1].system_attrs["constraints"] == [-0.4]  # what optuna-dashboard reads
    assert seen[2].values == [0.0, 200.0]


def test_what_was_interrupted_is_completed(
    database: Database, study: StudyRecord, storage: optuna.storages.RDBStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between two transactions: the next one writes all again, and nothing twice."""
    monkeypatch.setattr(projection, "CHUNK", 2)
    whole = Projection._put
    done: list[int] = []

    def dies(self: Projection, session: Any, work: Any, kinds: Any, ids: Any, *, last: bool) -> int:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(1)
        return whole(self, session, work, kinds, ids, last=last)

    monkeypatch.setattr(Projection, "_put", dies)
    with pytest.raises(KeyboardInterrupt):
        Projection(database).heal(study.id)
    monkeypatch.setattr(Projection, "_put", whole)
    assert Projection(database).heal(study.id) == len(ENDS)
    seen = optuna.load_study(storage=storage, study_name=study.name).trials
    assert [trial.user_attrs["number"] for trial in seen] == list(range(len(ENDS)))


def test_healed_while_trials_end_nothing_is_missed(
    database: Database, study: StudyRecord, storage: optuna.storages.RDBStorage
) -> None:
    """Two healers beside a worker that goes on; what is there at the end is what our tables say."""
    over = threading.Event()

    def heal() -> None:
        own = Database(database.url)
        while not over.is_set():
            Projection(own).heal(study.id)
        own.close()

    healers = [threading.Thread(target=heal) for _ in range(2)]
    for each in healers:
        each.start()
    for number in range(15):
        add(database, study, "completed", float(number), 50)
    over.set()
    for each in healers:
        each.join()
    Projection(database).heal(study.id)
    seen = optuna.load_study(storage=storage, study_name=study.name).trials
    ours = trials.list_of(database, study.id)
    assert sorted(trial.user_attrs[TRIAL_ID] for trial in seen) == [trial.id for trial in ours]
    assert [trial.number for trial in seen] == list(range(len(ours)))


def test_its_cost_is_some_statements_a_chunk(database: Database, study: StudyRecord) -> None:
    for _ in range(60):
        add(database, study, "completed", 5.0, 50)
    shown = Projection(database)
    shown.delete("makes the tables")
    statements: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    assert shown.heal(study.id) == 60 + len(ENDS)
    assert len(statements) < 40
    statements.clear()
    assert shown.heal(study.id) == 0
    assert len(statements) < 10


def test_a_deleted_study_leaves_nothing_of_optunas_behind(
    database: Database, study: StudyRecord, storage: optuna.storages.RDBStorage
) -> None:
    shown = Projection(database)
    shown.heal(study.id)
    optuna.load_study(storage=storage, study_name=study.name).ask()  # somebody played with it
    deleted = queue.delete(database, study.name)
    shown.delete(deleted.name)
    with storage.engine.connect() as connection:
        for table in (optuna_rows.STUDIES, optuna_rows.TRIALS, *optuna_rows.OF_A_STUDY, *optuna_rows.OF_A_TRIAL):
            assert connection.execute(select(table)).all() == []


def test_our_own_tables_are_ours_again_after_it(postgres_database: Database) -> None:
    """The search path holds for a part of one transaction."""
    study = studies.create(postgres_database, name="one", spec=SPEC, identity={})
    Projection(postgres_database).heal(study.id)
    assert studies.get(postgres_database, study.id) == study
    studies.delete(postgres_database, study.id)
