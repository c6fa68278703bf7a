"""Studies, trials and runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
DOCUMENT = sa.JSON().with_variant(JSONB(), "postgresql")
MOMENT = sa.DateTime(timezone=True)
OUTCOME = (
    "outcome IN ('completed', 'pruned', 'device_oom', 'numerical', 'unsupported', 'timeout', 'host_oom', 'shm', "
    "'crashed', 'infra', 'cancelled')"
)
CONFIDENCE = "confidence IN ('certain', 'probable')"
STATUS = "status IN ('queued', 'running', 'paused', 'finished', 'failed', 'cancelled')"
FINISHED = "(outcome IS NULL) = (finished_at IS NULL)"


def upgrade() -> None:
    _study()
    _trial()
    _run()


def downgrade() -> None:
    for name in ("tuner_run", "tuner_trial", "tuner_study"):
        op.drop_table(name)


def _study() -> None:
    op.create_table(
        "tuner_study",
        sa.Column("id", KEY, nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("identity", sa.JSON(), nullable=False),
        sa.Column("facts", DOCUMENT, nullable=False),
        sa.Column("device", sa.Text()),
        sa.Column("memory_limit_bytes", sa.BigInteger()),
        sa.Column("stop_reason", sa.Text()),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("trial_count", sa.BigInteger(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("finished_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_tuner_study"),
        sa.UniqueConstraint("name", name="uq_tuner_study_name"),
        sa.CheckConstraint(STATUS, name=op.f("ck_tuner_study_status")),
    )
    op.create_index("ix_tuner_study_status", "tuner_study", ["status"])


def _trial() -> None:
    op.create_table(
        "tuner_trial",
        sa.Column("id", KEY, nullable=False),
        sa.Column("study_id", KEY, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("config", DOCUMENT, nullable=False),
        sa.Column("config_key", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        *_ending(),
        sa.Column("throughput_unit", sa.Text()),
        sa.Column("throughput_standard_error", sa.Double()),
        sa.Column("windows", sa.BigInteger(), nullable=False),
        sa.Column("confirmed", sa.Boolean(), nullable=False),
        sa.Column("confirmed_throughput", sa.Double()),
        sa.Column("predicted_peak_memory_bytes", sa.BigInteger()),
        sa.Column("metrics", DOCUMENT, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tuner_trial"),
        sa.UniqueConstraint("study_id", "number", name="uq_tuner_trial_study_id_number"),
        sa.ForeignKeyConstraint(["study_id"], ["tuner_study.id"], name="fk_tuner_trial_study_id", ondelete="CASCADE"),
        *_checks("tuner_trial"),
    )
    op.create_index("ix_tuner_trial_study_id_outcome", "tuner_trial", ["study_id", "outcome"])
    op.create_index("ix_tuner_trial_study_id_config_key", "tuner_trial", ["study_id", "config_key"])


def _run() -> None:
    op.create_table(
        "tuner_run",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("study_id", KEY, nullable=False),
        sa.Column("trial_id", KEY),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        *_ending(),
        sa.Column("measurement", DOCUMENT, nullable=False),
        sa.Column("hardware", DOCUMENT, nullable=False),
        sa.Column("step_seconds", DOCUMENT, nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tuner_run"),
        sa.ForeignKeyConstraint(["study_id"], ["tuner_study.id"], name="fk_tuner_run_study_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["trial_id"], ["tuner_trial.id"], name="fk_tuner_run_trial_id", ondelete="CASCADE"),
        *_checks("tuner_run"),
    )
    op.create_index("ix_tuner_run_study_id_outcome", "tuner_run", ["study_id", "outcome"])
    op.create_index("ix_tuner_run_trial_id", "tuner_run", ["trial_id"])


def _ending() -> tuple[sa.Column[object], ...]:
    """How a trial or a run ended."""
    return (
        sa.Column("outcome", sa.String(20)),
        sa.Column("cause", sa.Text()),
        sa.Column("confidence", sa.String(20)),
        sa.Column("throughput", sa.Double()),
        sa.Column("peak_memory_bytes", sa.BigInteger()),
        sa.Column("evidence", DOCUMENT, nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("finished_at", MOMENT),
    )


def _checks(table: str) -> tuple[sa.CheckConstraint, ...]:
    return (
        sa.CheckConstraint(OUTCOME, name=op.f(f"ck_{table}_outcome")),
        sa.CheckConstraint(CONFIDENCE, name=op.f(f"ck_{table}_confidence")),
        sa.CheckConstraint(FINISHED, name=op.f(f"ck_{table}_finished")),
    )
