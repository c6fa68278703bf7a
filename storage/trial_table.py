"""A study's trials for tables and charts: pages, filters, the front; bounded whatever the study's size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sqlalchemy import ColumnElement, Text, func, select, type_coerce
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session

from storage.database import Database
from storage.models import Study, Trial
from storage.plain import to_json
from storage.records import TrialRecord
from storage.rows import TRIAL_COLUMNS, trial_record

OrderBy = Literal["number", "throughput", "peak_memory_bytes", "seconds", "outcome", "finished_at"]
WIDE = ("metrics", "evidence")
"""What a table does not show: read a trial itself for it."""
_NARROW = tuple(column for column in TRIAL_COLUMNS if column.key not in WIDE)


@dataclass(frozen=True, kw_only=True)
class TrialPage:
    """Part of a study's trials.

    Attributes:
        total: Trials that pass the filters, on all pages.
        trials: Those of this page, ``metrics`` and ``evidence`` left empty.
    """

    total: int
    trials: tuple[TrialRecord, ...]


def page(
    database: Database,
    study_id: int,
    *,
    outcomes: Sequence[str] | None = None,
    knobs: Mapping[str, Any] | None = None,
    order_by: OrderBy = "number",
    descending: bool = False,
    limit: int = 50,
    offset: int = 0,
) -> TrialPage:
    """One page of a study's trials.

    Args:
        database: The store.
        study_id: The study.
        outcomes: Only these; None for all trials, those without an outcome included.
        knobs: Only trials whose configuration has these values.
        order_by: What to sort by; trials without a figure come last, equals by number.
        descending: The largest first.
        limit: Trials on a page.
        offset: Trials to pass over.

    Raises:
        ValueError: ``order_by`` is none of the columns a table may be sorted by.
    """
    if order_by not in get_args(OrderBy):
        raise ValueError(f"trials can be sorted by {', '.join(get_args(OrderBy))}, not by {order_by!r}")
    column = Trial.__table__.c[order_by]
    conditions = [Trial.study_id == study_id, *_has(knobs or {}, embedded=database.embedded)]
    if outcomes is not None:
        conditions.append(Trial.outcome.in_(outcomes))
    order = (column.desc() if descending else column.asc()).nulls_last()
    rows = select(*_NARROW).where(*conditions).order_by(order, Trial.number).limit(limit).offset(offset)
    count = select(func.count()).select_from(Trial).where(*conditions)
    total, found = database.read(lambda session: (session.scalar(count), session.execute(rows).all()))
    return TrialPage(total=total or 0, trials=tuple(map(trial_record, found)))


def _has(knobs: Mapping[str, Any], *, embedded: bool) -> list[ColumnElement[bool]]:
    """One condition a knob. A kind is kept apart from another: true is not 1, and "4" is not 4."""
    if not embedded:
        config = type_coerce(Trial.config, JSONB)
        return [config.contains({name: value}) for name, value in knobs.items()]
    written = type_coerce(Trial.config, Text)
    return [written.op("->")(f"$.{to_json(name)}") == to_json(value) for name, value in knobs.items()]


def front(database: Database, study_id: int) -> tuple[TrialRecord, ...]:
    """The study's Pareto front of throughput against peak memory inside its limit, fastest first.

    The same trials as ``tuner.search.front`` finds: of exact equals the earliest stays. The database reads three
    numbers a trial and hands over only the front.
    """
    limit = select(Study.memory_limit_bytes).where(Study.id == study_id).scalar_subquery()
    fastest_first = (Trial.throughput.desc(), Trial.peak_memory_bytes, Trial.number)
    smaller_so_far = func.min(Trial.peak_memory_bytes).over(order_by=fastest_first, rows=(None, -1))
    feasible = select(Trial.id, Trial.peak_memory_bytes, smaller_so_far.label("before")).where(
        Trial.study_id == study_id,
        Trial.outcome == "completed",
        Trial.throughput.is_not(None),
        Trial.peak_memory_bytes <= func.coalesce(limit, Trial.peak_memory_bytes),
    )
    ranked = feasible.subquery()
    best = select(ranked.c.id).where((ranked.c.before.is_(None)) | (ranked.c.peak_memory_bytes < ranked.c.before))
    rows = select(*TRIAL_COLUMNS).where(Trial.id.in_(best)).order_by(*fastest_first)
    return tuple(map(trial_record, database.read(lambda session: session.execute(rows).all())))


def ended_ids_in(session: Session, study_id: int, *, since: int) -> tuple[int, ...]:
    """Ids of the ended trials that have changed since a version of the study, by number; 0 for all."""
    ended = (Trial.study_id == study_id, Trial.outcome.is_not(None), Trial.changed > since)
    return tuple(session.execute(select(Trial.id).where(*ended).order_by(Trial.number)).scalars().all())


def by_ids_in(session: Session, ids: Sequence[int]) -> tuple[TrialRecord, ...]:
    """These trials by number, ``metrics`` and ``evidence`` left empty. At most some hundred at a time."""
    rows = session.execute(select(*_NARROW).where(Trial.id.in_(ids)).order_by(Trial.number)).all()
    return tuple(map(trial_record, rows))


def points(database: Database, study_id: int, *columns: str) -> tuple[tuple[Any, ...], ...]:
    """A few columns of all trials by number, for charts: 10,000 rows are read in tens of milliseconds.

    Args:
        database: The store.
        study_id: The study.
        columns: Names of :class:`storage.records.TrialRecord`'s fields.
    """
    statement = select(*(Trial.__table__.c[name] for name in columns)).where(Trial.study_id == study_id)
    rows = database.read(lambda session: session.execute(statement.order_by(Trial.number)).all())
    return tuple(map(tuple, rows))


def figure(database: Database, study_id: int, *path: str) -> tuple[tuple[int, float], ...]:
    """One number out of the trials' metrics, such as ``mfu``, with the trial's number; trials without it are left out.

    Args:
        database: The store.
        study_id: The study.
        path: Where it stands: ``"energy_joules"``, or ``"conditions", "power_watts"``.
    """
    found: ColumnElement[Any] = Trial.__table__.c.metrics
    for name in path:
        found = found[name]
    number = found.as_float()
    rows = select(Trial.number, number).where(Trial.study_id == study_id, number.is_not(None)).order_by(Trial.number)
    return tuple((int(at), float(value)) for at, value in database.read(lambda session: session.execute(rows).all()))
