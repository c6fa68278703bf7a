"""Runs: one row a child process, ended exactly once, together with its trial where that ends too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from storage.clock import clock
from storage.database import Database
from storage.errors import AlreadyFinished, NotFound
from storage.models import Run
from storage.records import Json, RunEnd, RunRecord, TrialEnd, TrialRecord
from storage.rows import QUIET, RUN_COLUMNS, change_study, run_record
from storage.trials import finish_in
from storage.types import now


def start(
    database: Database,
    *,
    id: str,
    study_id: int,
    purpose: str,
    trial_id: int | None = None,
    attempt: int = 1,
    hardware: Json | None = None,
    worker_id: str | None = None,
) -> RunRecord:
    """Stores a run before its child starts. The same id again is the same run.

    Args:
        database: The store.
        id: A UUID as text, made by the worker.
        study_id: The study.
        purpose: One of the purposes of a run.
        trial_id: The trial; None for runs of a study or a device.
        attempt: 1 for the first run of that purpose.
        hardware: What the numbers will belong to, as far as it is known.
        worker_id: The worker whose heartbeats keep it; None for ``tuner run``, whose runs no recovery touches.

    Raises:
        NotFound: No such study or trial.
    """
    values: dict[str, Any] = {
        "id": id, "study_id": study_id, "trial_id": trial_id, "purpose": purpose, "attempt": attempt,
        "hardware": hardware or {}, "measurement": {}, "step_seconds": [], "evidence": {}, "seconds": 0.0,
        "started_at": now(), "worker_id": worker_id,
    }  # fmt: skip

    def work(session: Session) -> RunRecord:
        known = session.execute(select(*RUN_COLUMNS).where(Run.id == id)).one_or_none()
        if known is not None:
            return run_record(known)
        version = change_study(session, study_id)
        heartbeat_at = None if worker_id is None else clock(session)
        session.execute(insert(Run).values(changed=version, heartbeat_at=heartbeat_at, **values))
        return _get(session, id)

    try:
        return database.write(work, repeatable=True)
    except IntegrityError as error:
        raise NotFound(f"run {id} belongs to no stored study or trial") from error


def finish(database: Database, id: str, *, outcome: str, **fields: Unpack[RunEnd]) -> RunRecord:
    """Gives a run its one outcome. Once it has it, the same outcome again changes nothing.

    Raises:
        AlreadyFinished: It has another outcome, which stays; :func:`keep_late` keeps what came late.
        NotFound: No such run.
    """

    def work(session: Session) -> RunRecord:
        return _finish_in(session, id, outcome, fields, change_study(session, _study_of(session, id)))

    return database.write(work, repeatable=True)


def record_end(
    database: Database,
    *,
    id: str,
    outcome: str,
    run: RunEnd | None = None,
    trial_id: int | None = None,
    trial_outcome: str | None = None,
    trial: TrialEnd | None = None,
) -> tuple[RunRecord, TrialRecord | None]:
    """Stores a run's end and its trial's end in one transaction: both or neither. Repeating it changes nothing.

    Args:
        database: The store.
        id: The run.
        outcome: The run's outcome.
        run: The rest of the run's end.
        trial_id: The trial that ends with it; None when none does.
        trial_outcome: The trial's outcome; None for the run's.
        trial: The rest of the trial's end.

    Raises:
        AlreadyFinished: Run or trial has another outcome; nothing is changed.
        NotFound: No such run or trial.
    """

    def work(session: Session) -> tuple[RunRecord, TrialRecord | None]:
        version = change_study(session, _study_of(session, id))
        ended = None
        if trial_id is not None:
            ended = finish_in(session, trial_id, trial_outcome or outcome, trial or {}, version)
        return _finish_in(session, id, outcome, run or {}, version), ended

    return database.write(work, repeatable=True)


def note_progress(database: Database, progress: Mapping[str, Json]) -> None:
    """Keeps how far open runs have come, for whoever watches. One statement; the study's version stays as it is.

    Args:
        database: The store.
        progress: By run id: ``phase``, ``steps``, ``units_per_second``, ``memory_bytes``, as in
            :attr:`storage.records.RunRecord.progress`; the time is added here. A run that has an outcome already, or
            is not stored, is passed over.
    """
    at = now().isoformat()
    rows = [{"run": id, "seen": {**progress[id], "at": at}} for id in sorted(progress)]
    if not rows:
        return
    table = Run.__table__
    still_open = (table.c.id == bindparam("run"), table.c.outcome.is_(None))
    noted = update(table).where(*still_open).values(progress=bindparam("seen"))  # type: ignore[arg-type]
    database.write(lambda session: session.execute(noted, rows), repeatable=True)


def keep_late(database: Database, id: str, *, result: Json) -> RunRecord:
    """Keeps the result of a run that had been declared lost, as ``evidence["late"]``; it counts nowhere.

    Raises:
        NotFound: No such run.
    """

    def work(session: Session) -> RunRecord:
        known = _get(session, id)
        version = change_study(session, known.study_id)
        kept = {"evidence": {**known.evidence, "late": result}, "changed": version}
        session.execute(update(Run).where(Run.id == id).values(**kept), execution_options=QUIET)
        return _get(session, id)

    return database.write(work, repeatable=True)


def get(database: Database, id: str) -> RunRecord:
    """One run.

    Raises:
        NotFound: No such run.
    """
    return database.read(lambda session: _get(session, id))


def list_of(
    database: Database, *, study_id: int | None = None, trial_id: int | None = None, purpose: str | None = None
) -> tuple[RunRecord, ...]:
    """Runs by the time they started, of a study, a trial, a purpose, or several of these at once."""
    wanted = {Run.study_id: study_id, Run.trial_id: trial_id, Run.purpose: purpose}
    conditions = [column == value for column, value in wanted.items() if value is not None]
    return _where(database, *conditions)


def of_trials(database: Database, trial_ids: Sequence[int]) -> tuple[RunRecord, ...]:
    """The runs of these trials by the time they started; asked for 500 trials at a time."""
    parts = (trial_ids[start : start + 500] for start in range(0, len(trial_ids), 500))
    found = (run for part in parts for run in _where(database, Run.trial_id.in_(part)))
    return tuple(sorted(found, key=lambda run: (run.started_at, run.id)))


def changed_since(database: Database, study_id: int, version: int) -> tuple[RunRecord, ...]:
    """The runs of a study that are new or changed since, by the time they started.

    Args:
        database: The store.
        study_id: The study.
        version: The largest ``changed`` seen so far; 0 for all runs. Heartbeats are no changes.
    """
    return _where(database, Run.study_id == study_id, Run.changed > version)


def attempts(database: Database, trial_id: int, *, purpose: str = "search") -> tuple[RunRecord, ...]:
    """How a trial was tried so far: its runs of one purpose by attempt, the open one included."""
    found = _where(database, Run.trial_id == trial_id, Run.purpose == purpose)
    return tuple(sorted(found, key=lambda run: run.attempt))


def unfinished(
    database: Database, *, study_id: int | None = None, trial_id: int | None = None
) -> tuple[RunRecord, ...]:
    """Runs without an outcome: they run now, or their worker died."""
    wanted = {Run.study_id: study_id, Run.trial_id: trial_id}
    conditions = [column == value for column, value in wanted.items() if value is not None]
    return _where(database, Run.outcome.is_(None), *conditions)


def _where(database: Database, *conditions: Any) -> tuple[RunRecord, ...]:
    statement = select(*RUN_COLUMNS).where(*conditions).order_by(Run.started_at, Run.id)
    return tuple(map(run_record, database.read(lambda session: session.execute(statement).all())))


def _study_of(session: Session, id: str) -> int:
    study_id = session.execute(select(Run.study_id).where(Run.id == id)).scalar_one_or_none()
    if study_id is None:
        raise NotFound(f"no run with id {id}")
    return study_id


def _finish_in(session: Session, id: str, outcome: str, fields: RunEnd, version: int) -> RunRecord:
    unknown = set(fields) - set(RunEnd.__annotations__)
    if unknown:
        raise TypeError(f"cannot be stored with a run: {', '.join(sorted(unknown))}")
    values = {"outcome": outcome, "finished_at": now(), "changed": version, "progress": None, **fields}
    statement = update(Run).where(Run.id == id, Run.outcome.is_(None)).values(**values)
    session.execute(statement, execution_options=QUIET)
    stored = _get(session, id)
    if stored.outcome != outcome:
        raise AlreadyFinished(f"run {id}", str(stored.outcome))
    return stored


def _get(session: Session, id: str) -> RunRecord:
    row = session.execute(select(*RUN_COLUMNS).where(Run.id == id)).one_or_none()
    if row is None:
        raise NotFound(f"no run with id {id}")
    return run_record(row)
