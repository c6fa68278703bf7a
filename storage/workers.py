"""Workers: one row a process that owns one device, alive as long as its heartbeat is younger than its lease.

Only the database's clock counts. A worker declared lost (:mod:`storage.recovery`) cannot come back under its id: it
hears ``gone`` at its next heartbeat, ends its runs and registers anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, insert, select, update
from sqlalchemy import delete as delete_rows
from sqlalchemy.orm import Session

from storage.clock import clock, clock_column
from storage.database import Database
from storage.errors import NotFound
from storage.models import Run, Study, Worker
from storage.records import Beat, Json, WorkerRecord, WorkerStatus
from storage.rows import QUIET, WORKER_COLUMNS, worker_record

LEASE_SECONDS = 60.0
"""The usual lease; four heartbeats fit into it."""
STEADY_SHARE = 0.5
"""A silence longer than this share of the lease ends a worker's steadiness: something was out of order."""
QUARANTINE_AFTER = 3
"""So many runs in a row that end as ``infra`` on a device take it out of service until a person releases it."""
LONGEST_NAME = 63
"""PostgreSQL cuts an application name after so many bytes."""


def application_name(host: str, device: str) -> str:
    """What ``pg_stat_activity`` shows of a worker: ``tuner worker HOST/DEVICE``, a long host cut.

    Args:
        host: Its host's name.
        device: ``cuda:0``, ``cpu`` or the like.
    """
    spare = LONGEST_NAME - len(f"tuner worker /{device}")
    return f"tuner worker {host[: max(spare, 1)]}/{device}".encode("ascii", "replace").decode()[:LONGEST_NAME]


def open_store(url: str | None, *, host: str, device: str) -> Database:
    """The store as a worker opens it: named on the server, and two connections in steady state.

    One of them is for its work, the other listens (:class:`storage.wakeups.Wakeups`).

    Args:
        url: As in :meth:`storage.database.Database.open`.
        host: As in :func:`application_name`.
        device: Likewise.

    Raises:
        StoreUnavailable: The text names no store.
    """
    return Database.open(url, application_name=application_name(host, device), connections=1)


def register(
    database: Database,
    *,
    id: str,
    host: str,
    pid: int,
    device_kind: str,
    device_name: str,
    device_uuid: str = "",
    total_memory_bytes: int = 0,
    threads: int = 1,
    cores: Sequence[int] = (),
    facts: Json | None = None,
    lease_seconds: float = LEASE_SECONDS,
) -> WorkerRecord:
    """Stores a worker, ``idle``; ``quarantined`` where its device was left so. The same id again is the same worker.

    How many runs in a row ended as ``infra`` on the device is taken over from its last worker: a worker that is started
    again does not make a broken device whole. Fields as in :class:`storage.records.WorkerRecord`.
    """
    values: dict[str, Any] = {
        "id": id, "host": host, "pid": pid, "device_kind": device_kind, "device_name": device_name,
        "device_uuid": device_uuid, "total_memory_bytes": total_memory_bytes, "threads": threads,
        "cores": list(cores), "facts": facts or {}, "lease_seconds": lease_seconds,
    }  # fmt: skip

    def work(session: Session) -> WorkerRecord:
        if _find(session, id) is None:
            moment = clock(session)
            times = {"heartbeat_at": moment, "steady_since": moment, "started_at": moment}
            session.execute(insert(Worker).values(**values, **times, **_inherited(session, host, device_uuid)))
        return _get(session, id)

    return database.write(work, repeatable=True)


def _inherited(session: Session, host: str, device_uuid: str) -> dict[str, Any]:
    """What a device's next worker takes over from its last one."""
    fresh = {"status": "idle", "reason": None, "infra_in_a_row": 0}
    same = select(*WORKER_COLUMNS).where(Worker.host == host, Worker.device_uuid == device_uuid)
    row = session.execute(same.order_by(Worker.started_at.desc()).limit(1)).one_or_none() if device_uuid else None
    if row is None:
        return fresh
    last = worker_record(row)
    if last.status == "quarantined":
        return {"status": "quarantined", "reason": last.reason, "infra_in_a_row": last.infra_in_a_row}
    return {**fresh, "infra_in_a_row": last.infra_in_a_row}


def attach(database: Database, id: str, study_id: int) -> WorkerRecord:
    """Says which study a worker works on that took it without the queue (``tuner run``).

    Raises:
        NotFound: No such worker.
    """
    return _change(database, id, Worker.ended_at.is_(None), study_id=study_id, status="working")


def beat(database: Database, id: str, *, runs: Sequence[str] = ()) -> Beat:
    """Renews a worker's lease and its runs'; one short transaction.

    Args:
        database: The store.
        id: The worker.
        runs: Ids of the runs whose children live. An open run that its worker does not name for a lease is lost, too.

    Raises:
        NotFound: No such worker.
    """

    def work(session: Session) -> Beat:
        joined = select(*WORKER_COLUMNS, Study.status, Study.version, clock_column(session))
        joined = joined.outerjoin_from(Worker, Study, Worker.study_id == Study.id).where(Worker.id == id)
        row = session.execute(joined).one_or_none()
        if row is None:
            raise NotFound(f"no worker with id {id}")
        status, version, moment = row[-3:]
        worker = _renew(session, worker_record(tuple(row)), moment)
        kept = set() if worker.ended_at is not None else _renew_runs(session, id, runs, moment)
        return Beat(
            worker=worker,
            study_status=status,
            study_version=version,
            taken_away=tuple(run for run in runs if run not in kept),
        )

    return database.write(work, repeatable=True)


def _renew(session: Session, seen: WorkerRecord, moment: Any) -> WorkerRecord:
    silence = moment - seen.heartbeat_at
    steady = silence <= timedelta(seconds=seen.lease_seconds * STEADY_SHARE)
    times = {"heartbeat_at": moment, "steady_since": seen.steady_since if steady else moment}
    alive = update(Worker).where(Worker.id == seen.id, Worker.ended_at.is_(None)).values(**times)
    session.execute(alive, execution_options=QUIET)
    return _get(session, seen.id)


def _renew_runs(session: Session, id: str, runs: Sequence[str], moment: Any) -> set[str]:
    """The runs that are still open and this worker's."""
    if not runs:
        return set()
    mine = update(Run).where(Run.id.in_(runs), Run.worker_id == id, Run.outcome.is_(None))
    renewed = mine.values(heartbeat_at=moment).returning(Run.id)
    return set(session.execute(renewed, execution_options=QUIET).scalars())


def retire(database: Database, id: str, *, reason: str | None = None) -> WorkerRecord:
    """Ends a worker of its own will: ``gone`` (a quarantined one stays that, for its device's next worker).

    Runs and trials it still has are free for recovery at once. Doing it again changes nothing.

    Raises:
        NotFound: No such worker.
    """

    def work(session: Session) -> WorkerRecord:
        end_in(session, reason, Worker.id == id)
        return _get(session, id)

    return database.write(work, repeatable=True)


def end_in(session: Session, reason: str | None, *conditions: ColumnElement[bool]) -> tuple[str, ...]:
    """Ends living workers inside a transaction; returns the ids of those that lived until now."""
    moment = clock(session)
    alive = update(Worker).where(Worker.ended_at.is_(None), *conditions)
    plain = alive.where(Worker.status != "quarantined").values(status="gone", reason=reason)
    session.execute(plain, execution_options=QUIET)
    ended = alive.values(ended_at=moment, study_id=None).returning(Worker.id)
    return tuple(session.execute(ended, execution_options=QUIET).scalars())


def drain(database: Database, id: str) -> WorkerRecord:
    """Lets a worker finish what it does and take nothing further. Without effect on one that is quarantined or gone.

    Raises:
        NotFound: No such worker.
    """
    return _change(database, id, Worker.status.in_(("idle", "working")), status="draining")


def note_infra(database: Database, id: str, reason: str) -> WorkerRecord:
    """Counts a run that ended as ``infra`` for its device's sake; the third in a row quarantines the device.

    Args:
        database: The store.
        id: The worker.
        reason: What happened, for people.

    Raises:
        NotFound: No such worker.
    """

    def work(session: Session) -> WorkerRecord:
        one = update(Worker).where(Worker.id == id)
        session.execute(one.values(infra_in_a_row=Worker.infra_in_a_row + 1), execution_options=QUIET)
        too_often = one.where(Worker.infra_in_a_row >= QUARANTINE_AFTER, Worker.ended_at.is_(None))
        words = f"{QUARANTINE_AFTER} runs in a row failed on its device, the last: {reason}"
        session.execute(too_often.values(status="quarantined", reason=words), execution_options=QUIET)
        return _get(session, id)

    return database.write(work)


def note_fine(database: Database, id: str) -> WorkerRecord:
    """A run ended otherwise than as ``infra``: the device works.

    Raises:
        NotFound: No such worker.
    """
    return _change(database, id, Worker.infra_in_a_row > 0, infra_in_a_row=0)


def quarantine(database: Database, id: str, reason: str) -> WorkerRecord:
    """Takes a worker's device out of service until :func:`release`; the next worker on it is quarantined as well.

    Raises:
        NotFound: No such worker.
    """
    return _change(database, id, status="quarantined", reason=reason)


def release(database: Database, id: str) -> WorkerRecord:
    """Puts a worker's device back into service. Without effect where it is not quarantined.

    Raises:
        NotFound: No such worker.
    """

    def work(session: Session) -> WorkerRecord:
        known = _get(session, id)
        status: WorkerStatus = "idle" if known.ended_at is None else "gone"
        held = update(Worker).where(Worker.id == id, Worker.status == "quarantined")
        session.execute(held.values(status=status, reason=None, infra_in_a_row=0), execution_options=QUIET)
        return _get(session, id)

    return database.write(work, repeatable=True)


def get(database: Database, id: str) -> WorkerRecord:
    """One worker.

    Raises:
        NotFound: No such worker.
    """
    return database.read(lambda session: _get(session, id))


def list_all(
    database: Database, *, ended: bool = False, host: str | None = None, study_id: int | None = None
) -> tuple[WorkerRecord, ...]:
    """Workers by the time they started: the living ones, or with ``ended`` all; of one host or study where given."""
    wanted = {Worker.host: host, Worker.study_id: study_id}
    conditions = [column == value for column, value in wanted.items() if value is not None]
    statement = select(*WORKER_COLUMNS).where(*conditions).order_by(Worker.started_at, Worker.id)
    if not ended:
        statement = statement.where(Worker.ended_at.is_(None))
    return tuple(map(worker_record, database.read(lambda session: session.execute(statement).all())))


def forget(database: Database, *, older_than_seconds: float) -> int:
    """Removes workers that ended so long ago (seconds), quarantined ones excepted; returns how many."""

    def work(session: Session) -> int:
        before = clock(session) - timedelta(seconds=older_than_seconds)
        old = delete_rows(Worker).where(Worker.ended_at < before, Worker.status == "gone").returning(Worker.id)
        return len(session.execute(old, execution_options=QUIET).all())

    return database.write(work, repeatable=True)


def _change(database: Database, id: str, *conditions: ColumnElement[bool], **values: Any) -> WorkerRecord:
    def work(session: Session) -> WorkerRecord:
        session.execute(update(Worker).where(Worker.id == id, *conditions).values(**values), execution_options=QUIET)
        return _get(session, id)

    return database.write(work, repeatable=True)


def _find(session: Session, id: str) -> WorkerRecord | None:
    row = session.execute(select(*WORKER_COLUMNS).where(Worker.id == id)).one_or_none()
    return None if row is None else worker_record(row)


def _get(session: Session, id: str) -> WorkerRecord:
    worker = _find(session, id)
    if worker is None:
        raise NotFound(f"no worker with id {id}")
    return worker
