"""Studies with confirmed results, for finding an answer again: two statements for any number of studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, ScalarSelect, exists, select
from sqlalchemy.orm import Session

from storage.database import Database
from storage.models import Run, Study, Trial
from storage.records import Json

TRIALS = ("number", "config", "confirmed_throughput", "throughput_unit", "peak_memory_bytes")


@dataclass(frozen=True, kw_only=True)
class ConfirmedTrial:
    """One confirmed trial; fields as in :class:`storage.records.TrialRecord`."""

    number: int
    config: Json
    confirmed_throughput: float | None
    throughput_unit: str | None
    peak_memory_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class ConfirmedStudy:
    """One study that confirmed something.

    Attributes:
        spec: As stored.
        data: What its preparation found out about the data and the model; empty when nothing.
        memory_limit_bytes: What its trials might need.
        hardware: Device and software of its newest confirmation run; empty when that is not known.
        confirmed_at: When its newest confirmation run started; None when that is not known.
        trials: The confirmed ones that completed, fastest first.
    """

    id: int
    name: str
    device: str | None
    spec: Json
    data: Json
    memory_limit_bytes: int | None
    hardware: Json
    confirmed_at: datetime | None
    trials: tuple[ConfirmedTrial, ...] = ()


def confirmed_studies(database: Database, *, limit: int = 500, name: str | None = None) -> tuple[ConfirmedStudy, ...]:
    """Studies with a confirmed trial, newest first.

    Args:
        database: The store.
        limit: How many at most.
        name: Only this study; None for all.
    """
    return database.read(lambda session: _read(session, limit, name))


def _read(session: Session, limit: int, name: str | None) -> tuple[ConfirmedStudy, ...]:
    columns = (Study.id, Study.name, Study.device, Study.spec, Study.memory_limit_bytes)
    confirmed = exists().where(Trial.study_id == Study.id, Trial.confirmed, Trial.outcome == "completed")
    data, hardware, at = Study.facts["data"], _newest(Run.hardware), _newest(Run.started_at)
    page = select(*columns, data.label("data"), hardware.label("hardware"), at.label("confirmed_at")).where(confirmed)
    page = page.order_by(Study.id.desc()).limit(limit)
    heads = session.execute(page if name is None else page.where(Study.name == name)).all()
    trials = _trials(session, [head.id for head in heads])
    return tuple(_study(head, tuple(trials.get(head.id, ()))) for head in heads)


def _newest(column: Any) -> ScalarSelect[Any]:
    """Of a study's newest completed confirmation run."""
    mine = (Run.study_id == Study.id, Run.outcome == "completed", Run.purpose == "confirm")
    return select(column).where(*mine).order_by(Run.started_at.desc()).limit(1).scalar_subquery()


def _study(head: Row[Any], trials: tuple[ConfirmedTrial, ...]) -> ConfirmedStudy:
    values = {**head._mapping, "data": head.data or {}, "hardware": head.hardware or {}}
    return ConfirmedStudy(**values, trials=trials)


def _trials(session: Session, ids: Sequence[int]) -> dict[int, list[ConfirmedTrial]]:
    columns = (Trial.__table__.c[each] for each in TRIALS)
    wanted = (
        select(Trial.study_id, *columns)
        .where(Trial.study_id.in_(ids), Trial.confirmed, Trial.outcome == "completed")
        .order_by(Trial.confirmed_throughput.desc(), Trial.number)
    )
    found: dict[int, list[ConfirmedTrial]] = {}
    for row in session.execute(wanted):
        values: dict[str, Any] = {each: getattr(row, each) for each in TRIALS}
        found.setdefault(row.study_id, []).append(ConfirmedTrial(**values))
    return found
