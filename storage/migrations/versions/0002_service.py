"""Workers with leases, a queue of studies, and what changed since when."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
DOCUMENT = sa.JSON().with_variant(JSONB(), "postgresql")
MOMENT = sa.DateTime(timezone=True)
STATUS = "status IN ('idle', 'working', 'draining', 'quarantined', 'gone')"
OPEN = sa.text("outcome IS NULL")
BACKFILL = "UPDATE {table} SET changed = (SELECT version FROM tuner_study WHERE id = study_id)"


def upgrade() -> None:
    """Columns are added in place: a table that SQLite makes anew takes its children's rows along when it is dropped."""
    _add("tuner_study", sa.Column("priority", sa.BigInteger(), nullable=False, server_default="0"))
    _add("tuner_study", sa.Column("needs", DOCUMENT), sa.Column("submitted_at", MOMENT))
    for table in ("tuner_trial", "tuner_run"):
        _add(table, sa.Column("worker_id", sa.String(64)))
        _add(table, sa.Column("changed", sa.BigInteger(), nullable=False, server_default="0"))
        op.execute(sa.text(BACKFILL.format(table=table)))
        op.create_index(f"ix_{table}_study_id_changed", table, ["study_id", "changed"])
        op.create_index(f"ix_{table}_open", table, ["worker_id"], postgresql_where=OPEN, sqlite_where=OPEN)
    _add("tuner_run", sa.Column("heartbeat_at", MOMENT), sa.Column("progress", DOCUMENT))
    _worker()


def downgrade() -> None:
    op.drop_table("tuner_worker")
    for column in ("progress", "heartbeat_at"):
        op.drop_column("tuner_run", column)
    for table in ("tuner_run", "tuner_trial"):
        op.drop_index(f"ix_{table}_open", table)
        op.drop_index(f"ix_{table}_study_id_changed", table)
        op.drop_column(table, "changed")
        op.drop_column(table, "worker_id")
    for column in ("submitted_at", "needs", "priority"):
        op.drop_column("tuner_study", column)


def _add(table: str, *columns: sa.Column[object]) -> None:
    for column in columns:
        op.add_column(table, column)


def _worker() -> None:
    op.create_table(
        "tuner_worker",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("device_kind", sa.Text(), nullable=False),
        sa.Column("device_name", sa.Text(), nullable=False),
        sa.Column("device_uuid", sa.Text(), nullable=False),
        sa.Column("total_memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("threads", sa.BigInteger(), nullable=False),
        sa.Column("cores", DOCUMENT, nullable=False),
        sa.Column("facts", DOCUMENT, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("study_id", KEY),
        sa.Column("reason", sa.Text()),
        sa.Column("infra_in_a_row", sa.BigInteger(), nullable=False),
        sa.Column("lease_seconds", sa.Double(), nullable=False),
        sa.Column("heartbeat_at", MOMENT, nullable=False),
        sa.Column("steady_since", MOMENT, nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("ended_at", MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_tuner_worker"),
        sa.ForeignKeyConstraint(["study_id"], ["tuner_study.id"], name="fk_tuner_worker_study_id", ondelete="SET NULL"),
        sa.CheckConstraint(STATUS, name=op.f("ck_tuner_worker_status")),
    )
    op.create_index("ix_tuner_worker_ended_at", "tuner_worker", ["ended_at"])
    op.create_index("ix_tuner_worker_host_device_uuid", "tuner_worker", ["host", "device_uuid"])
    op.create_index("ix_tuner_worker_study_id", "tuner_worker", ["study_id"])
