"""Trials: numbered without gaps, ended exactly once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Unpack

from sqlalchemy import ColumnElement, and_, func, insert, or_, select, update
from sqlalchemy.orm import Session

from storage.database import Database
from storage.errors import AlreadyFinished, NotFound
from storage.models import Run, Study, Trial
from storage.records import Json, TrialEnd, TrialRecord, TrialUpdate
from storage.rows import QUIET, TRIAL_COLUMNS, change_study, trial_record
from storage.types import now


def reserve(
    database: Database,
    *,
    study_id: int,
    config: Json,
    config_key: str,
    source: str,
    max_trials: int | None = None,
    predicted_peak_memory_bytes: int | None = None,
    worker_id: str | None = None,
) -> TrialRecord | None:
    """Takes the study's next number for a configuration. Safe from any number of processes.

    Args:
        database: The store.
        study_id: The study.
        config: The whole configuration.
        config_key: Hash of the canonical configuration.
        source: ``baseline`` or a sampler's name.
        max_trials: Trials the study may have at most; None for no limit.
        predicted_peak_memory_bytes: The prediction, where there is one.
        worker_id: Whose trial it is; None for ``tuner run``.

    Returns:
        The new trial, without outcome; None when the study already has ``max_trials``.

    Raises:
        NotFound: No such study.
    """
    values = {
        "study_id": study_id, "config": config, "config_key": config_key, "source": source, "windows": 0,
        "confirmed": False, "metrics": {}, "evidence": {}, "seconds": 0.0, "created_at": now(),
        "predicted_peak_memory_bytes": predicted_peak_memory_bytes, "worker_id": worker_id,
    }  # fmt: skip

    def work(session: Session) -> TrialRecord | None:
        taken = _next_number(session, study_id, max_trials)
        if taken is None:
            return None
        number, version = taken
        made = session.execute(insert(Trial).values(number=number, changed=version, **values))
        return _get(session, made.inserted_primary_key[0])  # type: ignore[attr-defined]

    return database.write(work)


def _next_number(session: Session, study_id: int, max_trials: int | None) -> tuple[int, int] | None:
    """The number and the study's new version. Its row stays locked until the transaction ends: numbers have no gaps."""
    raised = {"version": Study.version + 1, "trial_count": Study.trial_count + 1}
    statement = update(Study).where(Study.id == study_id).values(**raised).returning(Study.trial_count, Study.version)
    row = session.execute(statement, execution_options=QUIET).one_or_none()
    if row is None:
        raise NotFound(f"no study with id {study_id}")
    count, version = row
    if max_trials is not None and count > max_trials:
        session.rollback()
        return None
    return count - 1, version


def finish(database: Database, trial_id: int, *, outcome: str, **fields: Unpack[TrialEnd]) -> TrialRecord:
    """Gives a trial its one outcome. Once it has it, the same outcome again changes nothing.

    Raises:
        AlreadyFinished: It has another outcome, which stays.
        NotFound: No such trial.
    """
    return database.write(lambda session: finish_in(session, trial_id, outcome, fields), repeatable=True)


def finish_in(
    session: Session, trial_id: int, outcome: str, fields: TrialEnd, version: int | None = None
) -> TrialRecord:
    """:func:`finish` inside a transaction; ``version`` where that has called :func:`storage.rows.change_study`."""
    if version is None:
        version = change_study(session, study_of(session, trial_id))
    values = {"outcome": outcome, "finished_at": now(), "changed": version, **_known(fields, TrialEnd)}
    statement = update(Trial).where(Trial.id == trial_id, Trial.outcome.is_(None)).values(**values)
    session.execute(statement, execution_options=QUIET)
    stored = _get(session, trial_id)
    if stored.outcome != outcome:
        raise AlreadyFinished(f"trial {stored.number}", str(stored.outcome))
    return stored


def update_fields(database: Database, trial_id: int, **fields: Unpack[TrialUpdate]) -> TrialRecord:
    """Stores further windows, the confirmation or the prediction. Never the outcome.

    Raises:
        NotFound: No such trial.
    """
    values = _known(fields, TrialUpdate)

    def work(session: Session) -> TrialRecord:
        version = change_study(session, study_of(session, trial_id))
        if values:
            changed = update(Trial).where(Trial.id == trial_id).values(changed=version, **values)
            session.execute(changed, execution_options=QUIET)
        return _get(session, trial_id)

    return database.write(work, repeatable=True)


def release(database: Database, trial_id: int, *, evidence: Json | None = None) -> TrialRecord:
    """Frees a trial whose process is dead for its next attempt: its unfinished runs become ``infra/worker_lost``.

    The trial itself keeps its number and has no outcome yet: run it again (the next attempt), or :func:`finish` it.

    Args:
        database: The store.
        trial_id: The trial.
        evidence: How it was noticed.

    Raises:
        NotFound: No such trial.
    """

    def work(session: Session) -> TrialRecord:
        version = change_study(session, study_of(session, trial_id))
        lose_runs(session, version, Run.trial_id == trial_id, evidence=evidence or {})
        owned = update(Trial).where(Trial.id == trial_id, Trial.outcome.is_(None), Trial.worker_id.is_not(None))
        session.execute(owned.values(worker_id=None, changed=version), execution_options=QUIET)
        return _get(session, trial_id)

    return database.write(work, repeatable=True)


def lose_runs(
    session: Session, version: int, *conditions: ColumnElement[bool], evidence: Json
) -> tuple[tuple[str, int | None], ...]:
    """Makes open runs of one study ``infra/worker_lost``; returns id and trial id of those that were open until now.

    Args:
        session: In a transaction that has called :func:`storage.rows.change_study` for that study.
        version: What that returned.
        conditions: Which runs.
        evidence: How it was noticed.
    """
    values = {"outcome": "infra", "cause": "worker_lost", "confidence": "certain", "finished_at": now()}
    lost = update(Run).where(Run.outcome.is_(None), *conditions)
    lost = lost.values(evidence=evidence, changed=version, progress=None, **values)
    found = session.execute(lost.returning(Run.id, Run.trial_id), execution_options=QUIET).all()
    return tuple((id, trial_id) for id, trial_id in found)


def reopen(database: Database, study_id: int) -> int:
    """Takes up again what was cancelled when its study ended, for a study that goes on; returns how many trials.

    They have no outcome again and get their next attempt.

    Raises:
        NotFound: No such study.
    """
    cancelled = (Trial.study_id == study_id, Trial.outcome == "cancelled")
    if database.read(lambda session: session.scalar(select(Trial.id).where(*cancelled).limit(1))) is None:
        return 0

    def work(session: Session) -> int:
        version = change_study(session, study_id)
        values: dict[str, Any] = {"outcome": None, "cause": None, "confidence": None, "finished_at": None}
        again = update(Trial).where(*cancelled).values(changed=version, worker_id=None, evidence={}, **values)
        return len(session.execute(again.returning(Trial.id), execution_options=QUIET).all())

    return database.write(work, repeatable=True)


def reopen_one(database: Database, trial_id: int) -> TrialRecord:
    """Takes a trial's outcome back, so that it gets its next attempt: what it ran under holds no longer.

    Its runs stay as they are. For a trial that ran out of memory under a smaller limit than the study's limit now.

    Raises:
        NotFound: No such trial.
    """

    def work(session: Session) -> TrialRecord:
        version = change_study(session, study_of(session, trial_id))
        values: dict[str, Any] = {"outcome": None, "cause": None, "confidence": None, "finished_at": None}
        again = update(Trial).where(Trial.id == trial_id).values(changed=version, worker_id=None, evidence={}, **values)
        session.execute(again, execution_options=QUIET)
        return _get(session, trial_id)

    return database.write(work, repeatable=True)


def take_over(
    database: Database, *, study_id: int, worker_id: str, holding: Collection[int] | None = None
) -> TrialRecord | None:
    """Gives a worker the first trial that has neither an outcome nor an owner: its next attempt is this worker's.

    Runs that its former owner left open become ``infra/worker_lost``. Safe from any number of processes. How often it
    was tried already: :func:`storage.runs.attempts`.

    Args:
        database: The store.
        study_id: The study.
        worker_id: The worker.
        holding: Ids of the open trials it knows to be its own; any other trial of its own is given to it as well. A
            connection cut during COMMIT leaves such trials: reserved, and nobody told. None looks for none of them.

    Returns:
        The trial, now the worker's; None when there is none.

    Raises:
        NotFound: No such study.
    """
    free: ColumnElement[bool] = Trial.worker_id.is_(None)
    if holding is not None:
        free = or_(free, and_(Trial.worker_id == worker_id, Trial.id.not_in(holding)))
    of_study = (Trial.study_id == study_id, Trial.outcome.is_(None))
    first = select(Trial.id).where(*of_study, free).order_by(Trial.number).limit(1)
    if database.read(lambda session: session.scalar(first)) is None:
        return None

    def work(session: Session) -> TrialRecord | None:
        version = change_study(session, study_id)
        trial_id = session.scalar(first)
        if trial_id is None:
            session.rollback()
            return None
        lose_runs(session, version, Run.trial_id == trial_id, evidence={"text": "its worker left it open"})
        taken = update(Trial).where(Trial.id == trial_id).values(worker_id=worker_id, changed=version)
        session.execute(taken, execution_options=QUIET)
        return _get(session, trial_id)

    return database.write(work)


def get(database: Database, trial_id: int) -> TrialRecord:
    """One trial.

    Raises:
        NotFound: No such trial.
    """
    return database.read(lambda session: _get(session, trial_id))


def list_of(database: Database, study_id: int) -> tuple[TrialRecord, ...]:
    """All trials of a study by number."""
    return _where(database, Trial.study_id == study_id)


def changed_since(database: Database, study_id: int, version: int) -> tuple[TrialRecord, ...]:
    """The trials of a study that are new or changed since, by number.

    Args:
        database: The store.
        study_id: The study.
        version: The largest ``changed`` seen so far; 0 for all trials. Changes are committed in the order of their
            versions, so nothing is passed over.
    """
    return _where(database, Trial.study_id == study_id, Trial.changed > version)


def by_ids(database: Database, trial_ids: Sequence[int]) -> tuple[TrialRecord, ...]:
    """These trials by number; asked for 500 at a time, as a statement takes only so many values."""
    parts = (trial_ids[start : start + 500] for start in range(0, len(trial_ids), 500))
    return tuple(trial for part in parts for trial in _where(database, Trial.id.in_(part)))


def baseline(database: Database, study_id: int) -> TrialRecord | None:
    """Trial 0, finished or not; None before it is reserved."""
    found = _where(database, Trial.study_id == study_id, Trial.number == 0)
    return found[0] if found else None


def by_key(database: Database, study_id: int, config_key: str) -> tuple[TrialRecord, ...]:
    """The trials of one configuration by number, those without an outcome included; empty when it was never tried."""
    return _where(database, Trial.study_id == study_id, Trial.config_key == config_key)


def unfinished(database: Database, study_id: int) -> tuple[TrialRecord, ...]:
    """The trials without an outcome by number: they run now, or their process died."""
    return _where(database, Trial.study_id == study_id, Trial.outcome.is_(None))


def finished_ids(database: Database, study_id: int) -> tuple[int, ...]:
    """Ids of the trials with an outcome, by number."""
    statement = select(Trial.id).where(Trial.study_id == study_id, Trial.outcome.is_not(None)).order_by(Trial.number)
    return tuple(database.read(lambda session: session.execute(statement).scalars().all()))


def counts(database: Database, study_id: int) -> dict[str, int]:
    """How many trials ended how; those without an outcome are not in it."""
    statement = (
        select(Trial.outcome, func.count())
        .where(Trial.study_id == study_id, Trial.outcome.is_not(None))
        .group_by(Trial.outcome)
    )
    rows = database.read(lambda session: session.execute(statement).all())
    return {str(outcome): count for outcome, count in rows}


def study_of(session: Session, trial_id: int) -> int:
    """The study of a trial.

    Raises:
        NotFound: No such trial.
    """
    study_id = session.execute(select(Trial.study_id).where(Trial.id == trial_id)).scalar_one_or_none()
    if study_id is None:
        raise NotFound(f"no trial with id {trial_id}")
    return study_id


def _get(session: Session, trial_id: int) -> TrialRecord:
    row = session.execute(select(*TRIAL_COLUMNS).where(Trial.id == trial_id)).one_or_none()
    if row is None:
        raise NotFound(f"no trial with id {trial_id}")
    return trial_record(row)


def _where(database: Database, *conditions: ColumnElement[bool]) -> tuple[TrialRecord, ...]:
    statement = select(*TRIAL_COLUMNS).where(*conditions).order_by(Trial.study_id, Trial.number)
    return tuple(map(trial_record, database.read(lambda session: session.execute(statement).all())))


def _known(fields: Any, allowed: type) -> dict[str, Any]:
    """The fields as column values; a name that may not be set here is our own mistake."""
    unknown = set(fields) - set(allowed.__annotations__)
    if unknown:
        raise TypeError(f"cannot be stored here: {', '.join(sorted(unknown))}")
    return dict(fields)
