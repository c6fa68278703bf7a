"""The tables' version: what a store has, what this version needs, and the way from one to the other."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sqlalchemy import column, inspect, select, table, text
from sqlalchemy.engine import Connection

from storage.errors import SchemaMismatch
from storage.locks import lock_key

SchemaState = Literal["current", "missing", "old", "newer"]
VERSION_TABLE = "tuner_schema_version"
REVISIONS = ("0001", "0002")
"""Every revision, oldest first. Kept here so that a look at the version needs no Alembic (0.3 s to import)."""


def schema_state(connection: Connection) -> SchemaState:
    """What the connection's database has: a version this one does not know counts as ``newer``."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return "missing"
    found = connection.scalar(select(column("version_num")).select_from(table(VERSION_TABLE)))
    if found is None:
        return "missing"
    if found == REVISIONS[-1]:
        return "current"
    return "old" if found in REVISIONS else "newer"


def mismatch(state: SchemaState, place: str) -> SchemaMismatch:
    """The error for a state that is not ``current``."""
    reasons = {
        "missing": "has no tables yet: run `tuner db migrate`",
        "old": "has the tables of an older version: run `tuner db migrate`",
        "newer": "was made by a newer version of this program: install that version, or name another store"
        " (`tuner db migrate` cannot go back)",
    }
    return SchemaMismatch(f"the store {place} {reasons[state]}")


def upgrade(connection: Connection, place: str) -> None:
    """Brings the tables up to date inside the connection's transaction, alone of all processes that try.

    Args:
        connection: In a transaction that may write; SQLite's write lock is then the lock, PostgreSQL gets one that ends
            with the transaction.
        place: The store's name for errors.

    Raises:
        SchemaMismatch: The tables are newer than this version.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": lock_key("migrate")})
    state = schema_state(connection)
    if state == "newer":
        raise mismatch(state, place)
    if state != "current":
        _run_migrations(connection)


def _run_migrations(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
