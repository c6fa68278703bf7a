"""Studies: made once by name, changed by whoever works on them."""

from __future__ import annotations

from sqlalchemy import delete as delete_rows
from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from storage.database import Database
from storage.errors import InvalidName, NameTaken, NotFound
from storage.models import Run, Study, Trial
from storage.records import Json, StudyRecord, StudyStatus
from storage.rows import STUDY_COLUMNS, change_study, study_record
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
    values = {
        "name": check_name(name), "status": "queued", "spec": spec, "identity": identity, "facts": {}, "seconds": 0.0,
        "version": 0, "trial_count": 0, "created_at": now(),
    }  # fmt: skip

    def work(session: Session) -> StudyRecord:
        session.execute(insert(Study).values(**values))
        return _by_name(session, name)

    try:
        return database.write(work)
    except IntegrityError as error:
        raise NameTaken(f"a study named {name!r} exists already") from error


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
    return database.read(lambda session: _by_id(session, id))


def list_all(database: Database, *, limit: int = 100, offset: int = 0) -> tuple[StudyRecord, ...]:
    """Studies, newest first."""
    statement = select(*STUDY_COLUMNS).order_by(Study.id.desc()).limit(limit).offset(offset)
    return tuple(map(study_record, database.read(lambda session: session.execute(statement).all())))


def set_status(database: Database, id: int, status: StudyStatus, stop_reason: str | None = None) -> StudyRecord:
    """Changes the status; an ended study gets its ``finished_at``, one that goes on loses it and its reason.

    Raises:
        NotFound: No such study.
    """
    finished_at = now() if status in ENDED else None
    return _change(database, id, status=status, stop_reason=stop_reason, finished_at=finished_at)


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
        return _by_id(session, id)

    return database.write(work)


def delete(database: Database, id: int) -> None:
    """Removes a study with all its trials and runs.

    Raises:
        NotFound: No such study.
    """

    def work(session: Session) -> None:
        change_study(session, id)
        session.execute(delete_rows(Run).where(Run.study_id == id))
        session.execute(delete_rows(Trial).where(Trial.study_id == id))
        session.execute(delete_rows(Study).where(Study.id == id))

    database.write(work)


def _change(database: Database, study_id: int, **values: object) -> StudyRecord:
    def work(session: Session) -> StudyRecord:
        change_study(session, study_id, **values)
        return _by_id(session, study_id)

    return database.write(work, repeatable=True)


def _by_id(session: Session, study_id: int) -> StudyRecord:
    row = session.execute(select(*STUDY_COLUMNS).where(Study.id == study_id)).one_or_none()
    if row is None:
        raise NotFound(f"no study with id {study_id}")
    return study_record(row)


def _by_name(session: Session, name: str) -> StudyRecord:
    return study_record(session.execute(select(*STUDY_COLUMNS).where(Study.name == name)).one())
