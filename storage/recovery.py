"""What dead workers leave is found and declared lost, by any living worker, exactly once.

A lease ends by the database's clock, and only under three conditions: its holder was silent for it; the server has been
up for it; and whoever declares it lost was itself in contact for it. So neither a restart of the server nor an outage
in which it stayed up and nobody could reach it takes anything away: every worker has one lease to come back first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, or_, select, update
from sqlalchemy.orm import Session

from storage.clock import clock, server_started
from storage.database import Database
from storage.errors import NotFound
from storage.models import Run, Study, Trial, Worker
from storage.queue import requeue_in
from storage.records import Recovered, WorkerRecord
from storage.rows import QUIET, WORKER_COLUMNS, change_study, worker_record
from storage.trials import lose_runs
from storage.workers import end_in

NOBODY = ""
"""No worker's id."""


@dataclass(frozen=True, kw_only=True)
class Contact:
    """How long all has been in order, by the database's clock.

    Attributes:
        moment: The time now.
        since: The later of the server's start and the time since which the judge has been in contact.
        lease_seconds: The judge's own lease; a shorter one of another worker counts as this long.
    """

    moment: datetime
    since: datetime
    lease_seconds: float

    def is_over(self, heartbeat_at: datetime, lease_seconds: float) -> bool:
        """Whether a lease last renewed then may be taken away."""
        lease = timedelta(seconds=max(lease_seconds, self.lease_seconds))
        return self.moment - heartbeat_at > lease and self.moment - self.since >= lease


@dataclass(frozen=True, kw_only=True)
class Left:
    """An open run or trial without a living owner.

    Attributes:
        heartbeat_at: As it was seen: whoever is heard of again meanwhile keeps it. None for a trial.
        worker_id: Likewise.
        why: For people.
    """

    id: Any
    study_id: int
    worker_id: str
    heartbeat_at: datetime | None = None
    why: str = "its worker has ended"


def recover(database: Database, by: str) -> Recovered:
    """Declares lost what no living worker answers for. Call it at each heartbeat; two at once harm nothing.

    Expired workers become ``gone`` (a quarantined one stays that), their open runs ``infra/worker_lost`` and their
    open trials ownerless, so that :func:`storage.trials.take_over` gives them to somebody; a running study that nobody
    works on is put back into the queue. ``tuner run``'s own runs are left alone.

    Args:
        database: The store.
        by: Id of the living worker that calls.

    Raises:
        NotFound: No such worker.
    """
    contact, living = database.read(lambda session: _look(session, by))
    if contact is None:
        return Recovered()
    silent = [each for each in living if contact.is_over(each.heartbeat_at, each.lease_seconds)]
    workers = [each.id for each in silent if _end(database, each)]
    runs, trials = database.read(lambda session: (_left_runs(session, contact), _left_trials(session)))
    freed = _free(database, runs, trials)
    _requeue(database)
    return Recovered(workers=tuple(workers), runs=freed[0], trials=freed[1])


def _look(session: Session, by: str) -> tuple[Contact | None, list[WorkerRecord]]:
    """The contact of the judge (None when it has been declared lost itself) and all other living workers."""
    rows = session.execute(select(*WORKER_COLUMNS).where(or_(Worker.ended_at.is_(None), Worker.id == by))).all()
    workers = {row.id: worker_record(row) for row in rows}
    judge = workers.pop(by, None)
    if judge is None:
        raise NotFound(f"no worker with id {by}")
    if judge.ended_at is not None:
        return None, []
    since = max(judge.steady_since, server_started(session) or judge.steady_since)
    contact = Contact(moment=clock(session), since=since, lease_seconds=judge.lease_seconds)
    # A judge that has not been heard of itself for a while is no judge.
    if contact.moment - judge.heartbeat_at > timedelta(seconds=judge.lease_seconds / 2):
        return None, []
    return contact, list(workers.values())


def _end(database: Database, seen: WorkerRecord) -> bool:
    """Ends a silent worker unless it has been heard of again, or somebody holds its row: that one will do it."""

    def work(session: Session) -> bool:
        silent = (Worker.id == seen.id, Worker.heartbeat_at == seen.heartbeat_at, Worker.ended_at.is_(None))
        locked = select(Worker.id).where(*silent).with_for_update(skip_locked=True)
        if session.scalar(locked) is None:
            return False
        words = f"nothing was heard of it for its lease of {seen.lease_seconds:g} s"
        return bool(end_in(session, words, *silent))

    return database.write(work)


def _left_runs(session: Session, contact: Contact) -> list[Left]:
    columns = (Run.id, Run.study_id, Run.worker_id, Run.heartbeat_at, Worker.lease_seconds, Worker.ended_at)
    owned = select(*columns, Worker.id).outerjoin(Worker, Worker.id == Run.worker_id)
    rows = session.execute(owned.where(Run.outcome.is_(None), Run.worker_id.is_not(None))).all()
    found = []
    for id, study_id, worker_id, heartbeat_at, lease_seconds, ended_at, known in rows:
        left = Left(id=id, study_id=study_id, worker_id=str(worker_id), heartbeat_at=heartbeat_at)
        if known is None or ended_at is not None:
            found.append(left)
        elif heartbeat_at is None or contact.is_over(heartbeat_at, lease_seconds):
            why = "its worker lives but has not spoken of it for its lease"
            found.append(Left(**{**vars(left), "why": why}))
    return found


def _left_trials(session: Session) -> list[Left]:
    living = select(Worker.id).where(Worker.ended_at.is_(None))
    open_ones = (Trial.outcome.is_(None), Trial.worker_id.is_not(None), Trial.worker_id.not_in(living))
    rows = session.execute(select(Trial.id, Trial.study_id, Trial.worker_id).where(*open_ones)).all()
    return [Left(id=id, study_id=study_id, worker_id=str(worker_id)) for id, study_id, worker_id in rows]


def _free(database: Database, runs: Iterable[Left], trials: Iterable[Left]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """One transaction a study, its row locked first, as everywhere."""
    of_study: dict[int, tuple[list[Left], list[Left]]] = defaultdict(lambda: ([], []))
    for run in runs:
        of_study[run.study_id][0].append(run)
    for trial in trials:
        of_study[trial.study_id][1].append(trial)
    lost: list[str] = []
    freed: list[int] = []
    for study_id, (its_runs, its_trials) in sorted(of_study.items()):
        found = database.write(_freeing(study_id, its_runs, its_trials))
        lost += found[0]
        freed += found[1]
    return tuple(lost), tuple(freed)


def _freeing(study_id: int, runs: list[Left], trials: list[Left]) -> Callable[[Session], tuple[list[str], list[int]]]:
    def work(session: Session) -> tuple[list[str], list[int]]:
        try:
            version = change_study(session, study_id)
        except NotFound:  # deleted meanwhile, with all it had
            return [], []
        lost = [id for run in runs for id, _ in lose_runs(session, version, _as_seen(run), evidence={"text": run.why})]
        freed = [id for trial in trials for id in _disown(session, version, trial)]
        if not lost and not freed:
            session.rollback()  # somebody else was faster: nothing has changed
        return lost, freed

    return work


def _as_seen(run: Left) -> Any:
    same = Run.heartbeat_at.is_(None) if run.heartbeat_at is None else Run.heartbeat_at == run.heartbeat_at
    return and_(Run.id == run.id, Run.worker_id == run.worker_id, same)


def _disown(session: Session, version: int, trial: Left) -> list[int]:
    owned = update(Trial).where(Trial.id == trial.id, Trial.worker_id == trial.worker_id, Trial.outcome.is_(None))
    freed = owned.values(worker_id=None, changed=version).returning(Trial.id)
    return list(session.execute(freed, execution_options=QUIET).scalars())


def _requeue(database: Database) -> None:
    """Running studies that no living worker is at; those of ``tuner run`` are not ours to judge."""
    at_it = select(Worker.id).where(Worker.study_id == Study.id, Worker.ended_at.is_(None))
    left = select(Study.id).where(Study.status == "running", Study.submitted_at.is_not(None), ~at_it.exists())
    for study_id in database.read(lambda session: session.execute(left).scalars().all()):
        database.write(lambda session, id=study_id: requeue_in(session, id, but=NOBODY))  # type: ignore[misc]
