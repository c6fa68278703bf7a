"""From rows to records. A record's fields have their columns' names, so a row is a record's keyword arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement, Row, update
from sqlalchemy.orm import Session

from storage.errors import NotFound
from storage.models import Base, Run, Study, Trial, Worker
from storage.records import RunRecord, StudyRecord, TrialRecord, WorkerRecord

QUIET = {"synchronize_session": False}
"""Execution options of changes: no object of this package stays in a session."""


def _columns(model: type[Base], record: type) -> tuple[ColumnElement[Any], ...]:
    return tuple(model.__table__.c[field.name] for field in fields(record))


STUDY_COLUMNS = _columns(Study, StudyRecord)
TRIAL_COLUMNS = _columns(Trial, TrialRecord)
RUN_COLUMNS = _columns(Run, RunRecord)
WORKER_COLUMNS = _columns(Worker, WorkerRecord)
WORKER_FIELDS = tuple(field.name for field in fields(WorkerRecord))


def study_record(row: Row[Any]) -> StudyRecord:
    """A row of :data:`STUDY_COLUMNS` as a record."""
    return StudyRecord(**{**row._mapping, "needs": row._mapping["needs"] or {}})


def trial_record(row: Row[Any]) -> TrialRecord:
    """A row of :data:`TRIAL_COLUMNS` as a record."""
    return TrialRecord(**row._mapping)


def run_record(row: Row[Any]) -> RunRecord:
    """A row of :data:`RUN_COLUMNS` as a record."""
    return RunRecord(**{**row._mapping, "step_seconds": tuple(row._mapping["step_seconds"])})


def worker_record(row: Sequence[Any]) -> WorkerRecord:
    """A row of :data:`WORKER_COLUMNS`, further columns behind them, as a record."""
    values = dict(zip(WORKER_FIELDS, row, strict=False))
    return WorkerRecord(**{**values, "cores": tuple(values["cores"])})


def change_study(session: Session, study_id: int, **values: Any) -> int:
    """Changes a study's row and raises its version; returns the new version, to be stored with what changes.

    Every change of a study, one of its trials or one of its runs comes through here first, so all processes lock the
    study's row before any other and cannot deadlock, and versions are committed in their order: who has seen one has
    seen all before it.

    Raises:
        NotFound: No such study.
    """
    raised = update(Study).where(Study.id == study_id).values(version=Study.version + 1, **values)
    version = session.execute(raised.returning(Study.version), execution_options=QUIET).scalar_one_or_none()
    if version is None:
        raise NotFound(f"no study with id {study_id}")
    return version
