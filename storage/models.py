"""The tables. Every name begins with ``tuner_``: other tools' tables may stand beside them.

One wide row a study, a trial and a run; what is only ever read whole (configuration, metrics, evidence) is one JSON
column each. A change here needs a revision in ``storage/migrations/versions``; a test compares the two.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, MetaData, String, UniqueConstraint, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from storage.types import KEY, Document, OrderedDocument, PlainText, Real, Utc, Whole

STATUSES = ("queued", "running", "paused", "finished", "failed", "cancelled")
OUTCOMES = (
    "completed", "pruned", "device_oom", "numerical", "unsupported", "timeout", "host_oom", "shm", "crashed", "infra",
    "cancelled",
)  # fmt: skip
CONFIDENCES = ("certain", "probable")
WORKER_STATUSES = ("idle", "working", "draining", "quarantined", "gone")
OPEN = text("outcome IS NULL")
"""What the small indexes of trials and runs without an outcome are limited to."""
NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


def _one_of(column: str, words: tuple[str, ...]) -> str:
    return f"{column} IN ({', '.join(repr(word) for word in words)})"


class Base(DeclarativeBase):
    """What all tables share: names of constraints that a migration can refer to."""

    metadata = MetaData(naming_convention=NAMING)


class Study(Base):
    """One study. ``trial_count`` is the next trial's number: raising it is what reserves one.

    ``submitted_at`` is null where no worker may take it: ``tuner run`` works on it itself.
    """

    __tablename__ = "tuner_study"
    __table_args__ = (
        CheckConstraint(_one_of("status", STATUSES), name="status"),
        Index(None, "status"),
    )

    id: Mapped[int] = mapped_column(KEY, primary_key=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    status: Mapped[str] = mapped_column(String(20))
    spec: Mapped[Any] = mapped_column(OrderedDocument, nullable=False)
    identity: Mapped[Any] = mapped_column(OrderedDocument, nullable=False)
    facts: Mapped[Any] = mapped_column(Document, nullable=False)
    device: Mapped[str | None] = mapped_column(PlainText)
    memory_limit_bytes: Mapped[int | None] = mapped_column(Whole)
    stop_reason: Mapped[str | None] = mapped_column(PlainText)
    seconds: Mapped[float] = mapped_column(Real)
    version: Mapped[int] = mapped_column(Whole)
    trial_count: Mapped[int] = mapped_column(Whole)
    created_at: Mapped[datetime] = mapped_column(Utc)
    finished_at: Mapped[datetime | None] = mapped_column(Utc)
    priority: Mapped[int] = mapped_column(Whole, server_default="0")
    needs: Mapped[Any | None] = mapped_column(Document)
    submitted_at: Mapped[datetime | None] = mapped_column(Utc)


class Trial(Base):
    """One trial of a study. ``changed`` is the study's version at its last change, ``worker_id`` who works on it."""

    __tablename__ = "tuner_trial"
    __table_args__ = (
        UniqueConstraint("study_id", "number"),
        CheckConstraint(_one_of("outcome", OUTCOMES), name="outcome"),
        CheckConstraint(_one_of("confidence", CONFIDENCES), name="confidence"),
        CheckConstraint("(outcome IS NULL) = (finished_at IS NULL)", name="finished"),
        Index(None, "study_id", "outcome"),
        Index(None, "study_id", "config_key"),
        Index(None, "study_id", "changed"),
        Index("ix_tuner_trial_open", "worker_id", postgresql_where=OPEN, sqlite_where=OPEN),
    )

    id: Mapped[int] = mapped_column(KEY, primary_key=True)
    study_id: Mapped[int] = mapped_column(KEY, ForeignKey("tuner_study.id", ondelete="CASCADE"))
    number: Mapped[int] = mapped_column(Whole)
    config: Mapped[Any] = mapped_column(Document, nullable=False)
    config_key: Mapped[str] = mapped_column(PlainText)
    source: Mapped[str] = mapped_column(PlainText)
    outcome: Mapped[str | None] = mapped_column(String(20))
    cause: Mapped[str | None] = mapped_column(PlainText)
    confidence: Mapped[str | None] = mapped_column(String(20))
    throughput: Mapped[float | None] = mapped_column(Real)
    throughput_unit: Mapped[str | None] = mapped_column(PlainText)
    throughput_standard_error: Mapped[float | None] = mapped_column(Real)
    windows: Mapped[int] = mapped_column(Whole)
    confirmed: Mapped[bool]
    confirmed_throughput: Mapped[float | None] = mapped_column(Real)
    peak_memory_bytes: Mapped[int | None] = mapped_column(Whole)
    predicted_peak_memory_bytes: Mapped[int | None] = mapped_column(Whole)
    metrics: Mapped[Any] = mapped_column(Document, nullable=False)
    evidence: Mapped[Any] = mapped_column(Document, nullable=False)
    seconds: Mapped[float] = mapped_column(Real)
    created_at: Mapped[datetime] = mapped_column(Utc)
    finished_at: Mapped[datetime | None] = mapped_column(Utc)
    worker_id: Mapped[str | None] = mapped_column(String(64))
    changed: Mapped[int] = mapped_column(Whole, server_default="0")


class Run(Base):
    """One child process, with everything that is known about it. ``heartbeat_at`` is by the database's clock.

    ``progress`` says how far it has come and is null once it has an outcome.
    """

    __tablename__ = "tuner_run"
    __table_args__ = (
        CheckConstraint(_one_of("outcome", OUTCOMES), name="outcome"),
        CheckConstraint(_one_of("confidence", CONFIDENCES), name="confidence"),
        CheckConstraint("(outcome IS NULL) = (finished_at IS NULL)", name="finished"),
        Index(None, "study_id", "outcome"),
        Index(None, "trial_id"),
        Index(None, "study_id", "changed"),
        Index("ix_tuner_run_open", "worker_id", postgresql_where=OPEN, sqlite_where=OPEN),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    study_id: Mapped[int] = mapped_column(KEY, ForeignKey("tuner_study.id", ondelete="CASCADE"))
    trial_id: Mapped[int | None] = mapped_column(KEY, ForeignKey("tuner_trial.id", ondelete="CASCADE"))
    purpose: Mapped[str] = mapped_column(PlainText)
    attempt: Mapped[int] = mapped_column(Whole)
    outcome: Mapped[str | None] = mapped_column(String(20))
    cause: Mapped[str | None] = mapped_column(PlainText)
    confidence: Mapped[str | None] = mapped_column(String(20))
    throughput: Mapped[float | None] = mapped_column(Real)
    peak_memory_bytes: Mapped[int | None] = mapped_column(Whole)
    measurement: Mapped[Any] = mapped_column(Document, nullable=False)
    hardware: Mapped[Any] = mapped_column(Document, nullable=False)
    step_seconds: Mapped[Any] = mapped_column(Document, nullable=False)
    evidence: Mapped[Any] = mapped_column(Document, nullable=False)
    seconds: Mapped[float] = mapped_column(Real)
    started_at: Mapped[datetime] = mapped_column(Utc)
    finished_at: Mapped[datetime | None] = mapped_column(Utc)
    worker_id: Mapped[str | None] = mapped_column(String(64))
    heartbeat_at: Mapped[datetime | None] = mapped_column(Utc)
    progress: Mapped[Any | None] = mapped_column(Document)
    changed: Mapped[int] = mapped_column(Whole, server_default="0")


class Worker(Base):
    """One process that owns one device. All its times are by the database's clock.

    Trials and runs name it without a foreign key: it may be forgotten before them.
    """

    __tablename__ = "tuner_worker"
    __table_args__ = (
        CheckConstraint(_one_of("status", WORKER_STATUSES), name="status"),
        Index(None, "ended_at"),
        Index(None, "host", "device_uuid"),
        Index(None, "study_id"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    host: Mapped[str] = mapped_column(PlainText)
    pid: Mapped[int] = mapped_column(Whole)
    device_kind: Mapped[str] = mapped_column(PlainText)
    device_name: Mapped[str] = mapped_column(PlainText)
    device_uuid: Mapped[str] = mapped_column(PlainText)
    total_memory_bytes: Mapped[int] = mapped_column(Whole)
    threads: Mapped[int] = mapped_column(Whole)
    cores: Mapped[Any] = mapped_column(Document, nullable=False)
    facts: Mapped[Any] = mapped_column(Document, nullable=False)
    status: Mapped[str] = mapped_column(String(20))
    study_id: Mapped[int | None] = mapped_column(KEY, ForeignKey("tuner_study.id", ondelete="SET NULL"))
    reason: Mapped[str | None] = mapped_column(PlainText)
    infra_in_a_row: Mapped[int] = mapped_column(Whole)
    lease_seconds: Mapped[float] = mapped_column(Real)
    heartbeat_at: Mapped[datetime] = mapped_column(Utc)
    steady_since: Mapped[datetime] = mapped_column(Utc)
    started_at: Mapped[datetime] = mapped_column(Utc)
    ended_at: Mapped[datetime | None] = mapped_column(Utc)
