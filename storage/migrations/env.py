"""Alembic's entry: our tables only, our version table, inside the caller's transaction."""

from __future__ import annotations

from typing import Any

from alembic import context

from storage.models import Base
from storage.schema import VERSION_TABLE


def ours(name: str | None, kind: str, _parents: Any) -> bool:
    """Whether Alembic may look at a thing: tables of other tools in the same database are none of our business."""
    return kind != "table" or (name is not None and name.startswith("tuner_"))


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    include_name=ours,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
