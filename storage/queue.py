"""The queue of studies: handed in by people, taken by workers, by priority and then in order.

``running`` means that somebody works on it. Each change of a status names those it may come from, in the same
statement: whatever a person and a worker do at once, the person's word stays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import JSON, BigInteger, ColumnElement, Select, cast, or_, select, type_coerce, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from storage import studies, wakeups
from storage.clock import clock
from storage.database import Database
from storage.errors import NameTaken, NotAllowed, NotFound
from storage.models import Study, Worker
from storage.records import Json, StudyRecord, StudyStatus, WorkerRecord
from storage.rows import QUIET, STUDY_COLUMNS, WORKER_COLUMNS, change_study, study_record, worker_record

OPEN: tuple[StudyStatus, ...] = ("queued", "running")
"""Statuses in which workers serve a study."""
NEEDS = frozenset({"device_kind", "memory_bytes"})


def submit(
    database: Database, *, name: str, spec: Json, identity: Json, priority: int = 0, needs: Json | None = None
) -> StudyRecord:
    """Stores a new study for the workers and wakes the idle ones.

    Args:
        database: The store.
        name: As in :func:`storage.studies.create`.
        spec: Likewise.
        identity: Likewise.
        priority: Higher is served first.
        needs: ``device_kind`` and ``memory_bytes`` a worker must have, as in :class:`storage.records.StudyRecord`.

    Raises:
        InvalidName: The name cannot be used.
        NameTaken: A study of this name exists: :func:`resume` it.
    """
    given = {"name": name, "spec": spec, "identity": identity, "priority": priority, "needs": checked_needs(needs)}

    def work(session: Session) -> StudyRecord:
        wakeups.announce(session)
        return studies.create_in(session, **given, submitted_at=clock(session))  # type: ignore[arg-type]

    try:
        return database.write(work)
    except IntegrityError as error:
        raise NameTaken(f"a study named {name!r} exists already") from error


def checked_needs(needs: Json | None) -> Json:
    """What a worker must have, if it is something we know; our own mistake otherwise."""
    unknown = set(needs or {}) - NEEDS
    if unknown:
        raise TypeError(f"a study cannot need: {', '.join(sorted(unknown))}")
    return {name: value for name, value in (needs or {}).items() if value is not None}


def claim_study(database: Database, worker_id: str, *, skip: Collection[int] = ()) -> StudyRecord | None:
    """Gives a worker the study it is to work on: the first one that its device may serve. Several may have the same.

    The first claim of a study settles the device kind of all its measurements (``device``): a front never mixes two.

    Args:
        database: The store.
        worker_id: An ``idle`` or ``working`` worker; one that is draining, quarantined or gone gets nothing.
        skip: Ids of studies it does not want just now (it may not run them, or they have nothing more to do for it).

    Returns:
        The study, ``running`` now, the worker ``working`` on it; None when there is none for it.

    Raises:
        NotFound: No such worker.
    """
    if not database.read(lambda session: _wanted(session, worker_id, skip)):
        return None

    def work(session: Session) -> StudyRecord | None:
        for study_id in _wanted(session, worker_id, skip):
            if _take(session, study_id, _worker(session, worker_id)):
                return _get(session, study_id)
        return None

    return database.write(work)


def wanted(database: Database, worker_id: str, *, skip: Collection[int] = ()) -> tuple[int, ...]:
    """Ids of the studies that :func:`claim_study` would choose from, first things first; changes nothing.

    Raises:
        NotFound: No such worker.
    """
    return database.read(lambda session: _wanted(session, worker_id, skip))


def _wanted(session: Session, worker_id: str, skip: Collection[int]) -> tuple[int, ...]:
    """Ids of the studies a worker may serve, first things first."""
    worker = _worker(session, worker_id)
    if worker.ended_at is not None or worker.status not in {"idle", "working"}:
        return ()
    return tuple(session.execute(_candidates(worker, skip)).scalars().all())


def _candidates(worker: WorkerRecord, skip: Collection[int]) -> Select[Any]:
    needs = type_coerce(Study.needs, JSON)
    kind, memory = needs["device_kind"].as_string(), cast(needs["memory_bytes"].as_string(), BigInteger)
    statement = select(Study.id).where(
        Study.status.in_(OPEN),
        Study.submitted_at.is_not(None),
        _same_device(worker),
        or_(kind.is_(None), kind == worker.device_kind),
        or_(memory.is_(None), memory <= worker.total_memory_bytes),
    )
    if skip:
        statement = statement.where(Study.id.not_in(skip))
    return statement.order_by(Study.priority.desc(), Study.submitted_at, Study.id).limit(20)


def _same_device(worker: WorkerRecord) -> ColumnElement[bool]:
    return or_(Study.device.is_(None), Study.device == worker.device_name)


def _take(session: Session, study_id: int, worker: WorkerRecord) -> bool:
    values = {"status": "running", "device": worker.device_name, "stop_reason": None, "finished_at": None}
    free = update(Study).where(Study.id == study_id, Study.status.in_(OPEN), _same_device(worker))
    taken = free.values(version=Study.version + 1, **values).returning(Study.id)
    if session.execute(taken, execution_options=QUIET).one_or_none() is None:
        return False
    mine = update(Worker).where(Worker.id == worker.id, Worker.status.in_(("idle", "working")))
    session.execute(mine.values(study_id=study_id, status="working"), execution_options=QUIET)
    return True


def leave_study(database: Database, worker_id: str, *, refusal: str | None = None) -> WorkerRecord:
    """Ends a worker's work on its study; the last one to leave puts a running study back into the queue.

    Args:
        database: The store.
        worker_id: The worker; without effect where it works on none.
        refusal: Why this worker may not run it (what its operator lists): shown with the study as its ``stop_reason``
            while it waits for another. A study without a trial may then go to another device kind again.

    Raises:
        NotFound: No such worker.
    """

    def work(session: Session) -> WorkerRecord:
        study_id = _worker(session, worker_id).study_id
        if study_id is not None:
            requeue_in(session, study_id, but=worker_id, refusal=refusal)
        working = update(Worker).where(Worker.id == worker_id)
        session.execute(working.values(study_id=None), execution_options=QUIET)
        session.execute(working.where(Worker.status == "working").values(status="idle"), execution_options=QUIET)
        return _worker(session, worker_id)

    return database.write(work, repeatable=True)


def requeue_in(session: Session, study_id: int, *, but: str, refusal: str | None = None) -> None:
    """Puts a running study back into the queue inside a transaction, unless living workers beside one are at it."""
    others = select(Worker.id).where(Worker.study_id == study_id, Worker.id != but, Worker.ended_at.is_(None))
    alone = ~others.exists()
    mine = update(Study).where(Study.id == study_id, Study.status == "running", Study.submitted_at.is_not(None), alone)
    values = {"status": "queued", "version": Study.version + 1}
    session.execute(mine.values(**values, stop_reason=refusal), execution_options=QUIET)
    if refusal is not None:
        unused = update(Study).where(Study.id == study_id, Study.status == "queued", Study.trial_count == 0)
        session.execute(unused.values(device=None), execution_options=QUIET)


def withdraw(database: Database, study_id: int) -> bool:
    """Takes a study that no worker serves out of the workers' hands, for ``tuner run``; False where they serve it.

    :func:`resume` gives it back to them.
    """

    def work(session: Session) -> bool:
        served = (Study.submitted_at.is_not(None), Study.status.in_(OPEN))
        if session.scalar(select(Study.id).where(Study.id == study_id, *served).with_for_update()) is not None:
            return False
        mine = update(Study).where(Study.id == study_id, Study.submitted_at.is_not(None))
        session.execute(mine.values(submitted_at=None, version=Study.version + 1), execution_options=QUIET)
        return True

    return database.write(work, repeatable=True)


def pause(database: Database, name: str) -> StudyRecord:
    """Lets the workers leave a study; what is done stays. A paused one stays as it is.

    Raises:
        NotFound: No such study.
        NotAllowed: It has ended already.
    """
    return _steer(database, name, "paused", PAUSE, "paused by a person: `tuner resume` goes on")


def resume(database: Database, name: str, *, spec: Json | None = None, priority: int | None = None) -> StudyRecord:
    """Puts a study back into the queue, for workers. One that is queued or running stays as it is.

    Args:
        database: The store.
        name: The study's.
        spec: The same study with other limits or another sampler; with it a finished study goes on as well.
        priority: A new one; None keeps it.

    Raises:
        NotFound: No such study.
        NotAllowed: It is finished, and no other limits are given.
    """
    rules: Mapping[StudyStatus, str | None] = RESUME if spec is None else {**RESUME, "finished": None}
    given = {"spec": spec, "priority": priority}
    values = {field: value for field, value in given.items() if value is not None}
    return _steer(database, name, "queued", rules, None, keep=OPEN, values=values)


def cancel(database: Database, name: str) -> StudyRecord:
    """Ends a study for good reason of a person; its measurements stay. A cancelled one stays as it is.

    Raises:
        NotFound: No such study.
        NotAllowed: It has ended by itself already.
    """
    return _steer(database, name, "cancelled", CANCEL, "cancelled by a person")


def delete(database: Database, name: str, *, force: bool = False) -> StudyRecord:
    """Removes a study with its trials and runs; its projection is the caller's to remove.

    Args:
        database: The store.
        name: The study's.
        force: Also one that is running: its workers end their runs as soon as they hear of it.

    Returns:
        The study as it was.

    Raises:
        NotFound: No such study.
        NotAllowed: It is running.
    """

    def work(session: Session) -> StudyRecord:
        study = _lock(session, name)
        if study.status == "running" and not force:
            raise NotAllowed(f"study {name!r} is running: `tuner cancel {name}` first, then delete it")
        wakeups.announce(session)
        studies.delete_in(session, study.id)
        return study

    return database.write(work)


PAUSE: Mapping[StudyStatus, str | None] = {
    "queued": None,
    "running": None,
    "finished": "there is nothing to pause",
    "failed": "there is nothing to pause: `tuner resume` tries again",
    "cancelled": "there is nothing to pause: `tuner resume` takes it up again",
}
RESUME: Mapping[StudyStatus, str | None] = {
    "paused": None,
    "failed": None,
    "cancelled": None,
    "finished": "raise its limits in the spec and submit that again",
}
CANCEL: Mapping[StudyStatus, str | None] = {
    "queued": None,
    "running": None,
    "paused": None,
    "finished": "there is nothing to cancel: `tuner delete` removes it",
    "failed": "there is nothing to cancel: `tuner delete` removes it",
}


def _steer(
    database: Database,
    name: str,
    status: StudyStatus,
    rules: Mapping[StudyStatus, str | None],
    reason: str | None,
    *,
    keep: Collection[StudyStatus] = (),
    values: Mapping[str, object] | None = None,
) -> StudyRecord:
    """Changes a status where the rules allow it. ``rules``: per status None (may be left) or the way out."""

    def work(session: Session) -> StudyRecord:
        study = _lock(session, name)
        if (study.status == status or study.status in keep) and not values:
            return study
        _require(study, rules, keep)
        if study.status not in keep:
            studies.set_status_in(session, study.id, status, reason)
        if status == "queued":
            _enqueue(session, study, values or {})
        wakeups.announce(session)
        return _get(session, study.id)

    return database.write(work)


def _require(study: StudyRecord, rules: Mapping[StudyStatus, str | None], keep: Collection[StudyStatus]) -> None:
    way_out = None if study.status in keep else rules.get(study.status)
    if way_out is not None:
        raise NotAllowed(f"study {study.name!r} is {study.status}: {way_out}")


def _enqueue(session: Session, study: StudyRecord, values: Mapping[str, object]) -> None:
    """Stores what is new; a study that ``tuner run`` made is the workers' from its first resumption here."""
    submitted = {} if study.submitted_at is not None else {"submitted_at": clock(session)}
    if values or submitted:
        change_study(session, study.id, **values, **submitted)


def _lock(session: Session, name: str) -> StudyRecord:
    """The study, its row locked until the transaction ends (an embedded store is locked as a whole)."""
    row = session.execute(select(*STUDY_COLUMNS).where(Study.name == name).with_for_update()).one_or_none()
    if row is None:
        raise NotFound(f"no study named {name!a}")
    return study_record(row)


def _get(session: Session, study_id: int) -> StudyRecord:
    return study_record(session.execute(select(*STUDY_COLUMNS).where(Study.id == study_id)).one())


def _worker(session: Session, worker_id: str) -> WorkerRecord:
    row = session.execute(select(*WORKER_COLUMNS).where(Worker.id == worker_id)).one_or_none()
    if row is None:
        raise NotFound(f"no worker with id {worker_id}")
    return worker_record(row)
