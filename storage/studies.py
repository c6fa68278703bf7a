"""Studies: made once by name, changed by whoever works on them."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import delete as delete_rows
from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from storage.database import Database
from storage.errors import InvalidName, NameTaken, NotFound
from storage.models import Run, Study, Trial
from storage.records import Json, StudyRecord, StudyStatus
from storage.rows import QUIET, STUDY_COLUMNS, change_study, study_record
from storage.types import now

ENDED: frozenset[StudyStatus] = frozenset({"finished", "failed", "cancelled"})


def check_name(name: str) -> str:
    """The name, if a study may have it.

    Raises:
        InvalidName: Empty, longer than 200 characters, with unprintable characters or with spaces at its ends.
    """
    if not name or len(name) > 200:
        raise InvalidName(f"a study's name has 1 to 200 characters; this one has {len(name)}")
    if not name.isprintable() or name != name.strip():
        raise InvalidName(f"a study's name has printable characters only and no space at its ends: {name!a}")
    return name


def create(database: Database, *, name: str, spec: Json, identity: Json) -> StudyRecord:
    """Stores a new study, ``queued``.

    Args:
        database: The store.
        name: 1 to 200 printable characters.
        spec: The validated spec. The order of its keys is kept.
        identity: What makes it this study and no other.

    Raises:
        InvalidName: The name cannot be used.
        NameTaken: A study of this name exists: :func:`find` it.
    """
    try:
        return database.write(lambda session: create_in(session, name=name, spec=spec, identity=identity))
    except IntegrityError as error:
        raise NameTaken(f"a study named {name!r} exists already") from error


def create_in(session: Session, *, name: str, spec: Json, identity: Json, **more: object) -> StudyRecord:
    """:func:`create` inside a transaction; a name that is taken is an ``IntegrityError``. ``more``: further columns."""
    values = {
        "name": check_name(name), "status": "queued", "spec": spec, "identity": identity, "facts": {}, "seconds": 0.0,
        "version": 0, "trial_count": 0, "created_at": now(), **more,
    }  # fmt: skip
    session.execute(insert(Study).values(**values))
    return _by_name(session, name)


def find(database: Database, name: str) -> StudyRecord | None:
    """The study of this name; None without one."""
    statement = select(*STUDY_COLUMNS).where(Study.name == name)
    row = database.read(lambda session: session.execute(statement).one_or_none()) if name.isprintable() else None
    return None if row is None else study_record(row)


def get(database: Database, id: int) -> StudyRecord:
    """The study with this id.

    Raises:
        NotFound: No such study.
    """
    return database.read(lambda session: get_in(session, id))


def get_in(session: Session, id: int) -> StudyRecord:
    """:func:`get` inside a transaction."""
    row = session.execute(select(*STUDY_COLUMNS).where(Study.id == id)).one_or_none()
    if row is None:
        raise NotFound(f"no study with id {id}")
    return study_record(row)


def status_of(database: Database, id: int) -> StudyStatus | None:
    """Its status and nothing else, for those who look every second; None when it is no longer stored."""
    return database.read(lambda session: session.scalar(select(Study.status).where(Study.id == id)))


def list_all(database: Database, *, limit: int = 100, offset: int = 0) -> tuple[StudyRecord, ...]:
    """Studies, newest first."""
    statement = select(*STUDY_COLUMNS).order_by(Study.id.desc()).limit(limit).offset(offset)
    return tuple(map(study_record, database.read(lambda session: session.execute(statement).all())))


def set_status(
    database: Database,
    id: int,
    status: StudyStatus,
    stop_reason: str | None = None,
    *,
    only_from: Collection[StudyStatus] | None = None,
) -> StudyRecord:
    """Changes the status; an ended study gets its ``finished_at``, one that goes on loses it and its reason.

    Args:
        database: The store.
        id: The study.
        status: The new one.
        stop_reason: Why it ended, for people.
        only_from: Nothing is changed where the status is none of these by now: what a person set meanwhile stays. None
            changes it in any case.

    Returns:
        The study as it is then.

    Raises:
        NotFound: No such study.
    """

    def work(session: Session) -> StudyRecord:
        set_status_in(session, id, status, stop_reason, only_from=only_from)
        return get_in(session, id)

    return database.write(work, repeatable=True)


def set_status_in(
    session: Session,
    id: int,
    status: StudyStatus,
    stop_reason: str | None = None,
    *,
    only_from: Collection[StudyStatus] | None = None,
) -> bool:
    """:func:`set_status` inside a transaction; returns whether it was changed."""
    values = {"status": status, "stop_reason": stop_reason, "finished_at": now() if status in ENDED else None}
    statement = update(Study).where(Study.id == id).values(version=Study.version + 1, **values)
    if only_from is not None:
        statement = statement.where(Study.status.in_(only_from))
    changed = session.execute(statement.returning(Study.id), execution_options=QUIET).one_or_none()
    return changed is not None


def set_facts(
    database: Database, id: int, facts: Json, *, device: str | None = None, memory_limit_bytes: int | None = None
) -> StudyRecord:
    """Stores what preparation and the capability child found. ``device`` and limit stay as they are where None.

    Raises:
        NotFound: No such study.
    """
    given = {"device": device, "memory_limit_bytes": memory_limit_bytes}
    return _change(database, id, facts=facts, **{name: value for name, value in given.items() if value is not None})


def update_spec(database: Database, id: int, spec: Json) -> StudyRecord:
    """Replaces the spec of a study that is resumed with other limits or another sampler; its identity stays.

    Raises:
        NotFound: No such study.
    """
    return _change(database, id, spec=spec)


def add_seconds(database: Database, id: int, seconds: float) -> StudyRecord:
    """Adds wall time spent working on it, in seconds.

    Raises:
        NotFound: No such study.
    """

    def work(session: Session) -> StudyRecord:
        change_study(session, id, seconds=Study.seconds + seconds)
        return get_in(session, id)

    return database.write(work)


def delete(database: Database, id: int) -> None:
    """Removes a study with all its trials and runs.

    Raises:
        NotFound: No such study.
    """
    database.write(lambda session: delete_in(session, id))


def delete_in(session: Session, id: int) -> None:
    """:func:`delete` inside a transaction."""
    change_study(session, id)
    session.execute(delete_rows(Run).where(Run.study_id == id), execution_options=QUIET)
    session.execute(delete_rows(Trial).where(Trial.study_id == id), execution_options=QUIET)
    session.execute(delete_rows(Study).where(Study.id == id), execution_options=QUIET)


def _change(database: Database, study_id: int, **values: object) -> StudyRecord:
    def work(session: Session) -> StudyRecord:
        change_study(session, study_id, **values)
        return get_in(session, study_id)

    return database.write(work, repeatable=True)


def _by_name(session: Session, name: str) -> StudyRecord:
    return study_record(session.execute(select(*STUDY_COLUMNS).where(Study.name == name)).one())
