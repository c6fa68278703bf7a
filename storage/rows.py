"""From rows to records. A record's fields have their columns' names, so a row is a record's keyword arguments."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement, Row, update
from sqlalchemy.orm import Session

from storage.errors import NotFound
from storage.models import Base, Run, Study, Trial
from storage.records import RunRecord, StudyRecord, TrialRecord


def _columns(model: type[Base], record: type) -> tuple[ColumnElement[Any], ...]:
    return tuple(model.__table__.c[field.name] for field in fields(record))


STUDY_COLUMNS = _columns(Study, StudyRecord)
TRIAL_COLUMNS = _columns(Trial, TrialRecord)
RUN_COLUMNS = _columns(Run, RunRecord)


def study_record(row: Row[Any]) -> StudyRecord:
    """A row of :data:`STUDY_COLUMNS` as a record."""
    return StudyRecord(**row._mapping)


def trial_record(row: Row[Any]) -> TrialRecord:
    """A row of :data:`TRIAL_COLUMNS` as a record."""
    return TrialRecord(**row._mapping)


def run_record(row: Row[Any]) -> RunRecord:
    """A row of :data:`RUN_COLUMNS` as a record."""
    return RunRecord(**{**row._mapping, "step_seconds": tuple(row._mapping["step_seconds"])})


def change_study(session: Session, study_id: int, **values: Any) -> None:
    """Changes a study's row and raises its version.

    Every change of a study or one of its trials comes through here first, so all processes lock the study's row before
    any other and cannot deadlock.

    Raises:
        NotFound: No such study.
    """
    statement = update(Study).where(Study.id == study_id).values(version=Study.version + 1, **values)
    if session.execute(statement, execution_options={"synchronize_session": False}).rowcount == 0:  # type: ignore[attr-defined]
        raise NotFound(f"no study with id {study_id}")
