"""Studies at a glance, for lists and screens: two statements for any number of studies."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, case, func, or_, select
from sqlalchemy.orm import Session

from storage.database import Database
from storage.models import Study, Trial, Worker
from storage.records import StudyStatus

HEAD = (
    "id", "name", "status", "device", "stop_reason", "seconds", "version", "priority", "created_at", "submitted_at",
    "finished_at",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class StudyOverview:
    """One study as a line of a list. Fields of :class:`storage.records.StudyRecord` mean what they mean there.

    Attributes:
        counts: Ended trials by outcome.
        open_trials: Trials without an outcome.
        trial_limit: Trials at most, as its spec says; None where that says nothing.
        workers: Living workers at it.
        best_throughput: The highest confirmed throughput inside the memory limit, in units per second; of the search
            while nothing is confirmed. None without a feasible trial.
        baseline_throughput: Trial 0's, likewise.
        throughput_unit: Of both.
        speedup: Best over baseline; None until both are confirmed, since search numbers of different trials do not
            compare.
        updated_at: The last time a trial was made or ended, the study was made or ended (whichever is later).
    """

    id: int
    name: str
    status: StudyStatus
    device: str | None
    stop_reason: str | None
    seconds: float
    version: int
    priority: int
    created_at: datetime
    submitted_at: datetime | None
    finished_at: datetime | None
    counts: dict[str, int] = field(default_factory=dict)
    open_trials: int = 0
    trial_limit: int | None = None
    workers: int = 0
    best_throughput: float | None = None
    baseline_throughput: float | None = None
    throughput_unit: str | None = None
    speedup: float | None = None
    updated_at: datetime


def list_studies(
    database: Database, *, limit: int = 1000, offset: int = 0, statuses: Collection[StudyStatus] | None = None
) -> tuple[StudyOverview, ...]:
    """Studies at a glance, newest first.

    Args:
        database: The store.
        limit: How many at most.
        offset: How many to pass over.
        statuses: Only these; None for all.
    """
    return database.read(lambda session: _list(session, limit, offset, statuses))


def stamp(database: Database) -> tuple[int, ...]:
    """Numbers that differ once :func:`list_studies` would, apart from leases that end: one narrow statement."""
    alive = select(func.count()).select_from(Worker).where(Worker.ended_at.is_(None), Worker.study_id.is_not(None))
    columns = (func.count(), func.coalesce(func.sum(Study.version), 0), func.coalesce(func.max(Study.id), 0))
    row = database.read(lambda session: session.execute(select(*columns, alive.scalar_subquery())).one())
    return tuple(int(each) for each in row)


def _list(
    session: Session, limit: int, offset: int, statuses: Collection[StudyStatus] | None
) -> tuple[StudyOverview, ...]:
    page = select(Study.id).order_by(Study.id.desc()).limit(limit).offset(offset)
    if statuses is not None:
        page = page.where(Study.status.in_(statuses))
    ids = page.subquery()
    heads = session.execute(_heads(select(ids.c.id))).all()
    figures: dict[int, list[Row[Any]]] = {}
    for row in session.execute(_figures(select(ids.c.id))):
        figures.setdefault(row.study_id, []).append(row)
    return tuple(_overview(head, figures.get(head.id, ())) for head in heads)


def _heads(ids: Select[Any]) -> Select[Any]:
    at_it = select(func.count()).where(Worker.study_id == Study.id, Worker.ended_at.is_(None)).scalar_subquery()
    columns = (Study.__table__.c[name] for name in HEAD)
    limit = Study.__table__.c.spec["limits"]["trials"].as_integer()
    return (
        select(*columns, at_it.label("workers"), limit.label("trial_limit"))
        .where(Study.id.in_(ids))
        .order_by(Study.id.desc())
    )


def _figures(ids: Select[Any]) -> Select[Any]:
    """One row a study and outcome: aggregates over the narrow columns alone."""
    fits = or_(Study.memory_limit_bytes.is_(None), Trial.peak_memory_bytes <= Study.memory_limit_bytes)
    feasible = and_(Trial.outcome == "completed", Trial.peak_memory_bytes.is_not(None), fits)
    baseline = and_(Trial.number == 0, Trial.outcome == "completed")
    columns = {
        "trials": func.count(),
        "searched": _most(feasible, Trial.throughput),
        "confirmed": _most(and_(feasible, Trial.confirmed), Trial.confirmed_throughput),
        "baseline_searched": _most(baseline, Trial.throughput),
        "baseline_confirmed": _most(and_(baseline, Trial.confirmed), Trial.confirmed_throughput),
        "unit": func.max(Trial.throughput_unit),
        "made": func.max(Trial.created_at),
        "ended": func.max(Trial.finished_at),
    }
    named = (column.label(name) for name, column in columns.items())
    grouped = select(Trial.study_id, Trial.outcome, *named).join(Study, Study.id == Trial.study_id)
    return grouped.where(Trial.study_id.in_(ids)).group_by(Trial.study_id, Trial.outcome)


def _most(condition: ColumnElement[bool], value: Any) -> ColumnElement[Any]:
    return func.max(case((condition, value)))


def _overview(head: Row[Any], figures: Iterable[Row[Any]]) -> StudyOverview:
    rows = list(figures)
    confirmed, searched = _largest(rows, "confirmed"), _largest(rows, "searched")
    baseline = _largest(rows, "baseline_confirmed")
    moments = (head.created_at, head.submitted_at, head.finished_at, _largest(rows, "made"), _largest(rows, "ended"))
    return StudyOverview(
        **{name: getattr(head, name) for name in HEAD},
        counts={row.outcome: row.trials for row in rows if row.outcome is not None},
        open_trials=sum(row.trials for row in rows if row.outcome is None),
        workers=head.workers,
        trial_limit=head.trial_limit,
        best_throughput=searched if confirmed is None else confirmed,
        baseline_throughput=_largest(rows, "baseline_searched") if baseline is None else baseline,
        throughput_unit=_largest(rows, "unit"),
        speedup=confirmed / baseline if confirmed and baseline else None,
        updated_at=max(moment for moment in moments if moment is not None),
    )


def _largest(rows: Iterable[Row[Any]], name: str) -> Any:
    return max((value for row in rows if (value := getattr(row, name)) is not None), default=None)
