"""The migrations make exactly the tables the models describe, on both databases."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text
from sqlalchemy.schema import CreateTable

import storage.migrations
from storage.database import Database
from storage.models import Base
from storage.schema import REVISIONS, VERSION_TABLE

FOLDER = Path(storage.migrations.__file__).parent


def test_every_revision_is_listed_in_order() -> None:
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)
    assert tuple(revision.revision for revision in reversed(list(script.walk_revisions()))) == REVISIONS
    assert script.get_heads() == [REVISIONS[-1]]


def test_the_migrated_tables_are_the_models(database: Database) -> None:
    options = {
        "compare_type": True,
        "compare_server_default": True,
        "include_name": lambda name, kind, _parents: kind != "table" or name in Base.metadata.tables,
    }
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Base.metadata) == []


def test_the_checks_are_the_models(database: Database) -> None:
    """Alembic does not compare check constraints."""
    with database.engine.connect() as connection:
        found = {
            check["name"]
            for table in Base.metadata.tables
            for check in inspect(connection).get_check_constraints(table)
        }
    named = {
        constraint.name
        for table in Base.metadata.tables.values()
        for constraint in table.constraints
        if type(constraint).__name__ == "CheckConstraint"
    }
    assert found == named


def test_the_checks_texts_are_the_models(sqlite_database: Database) -> None:
    """Word for word, on the database that keeps the text as it was written."""
    statement = text("SELECT sql FROM sqlite_master WHERE name = :name")
    for table in Base.metadata.sorted_tables:
        made = sqlite_database.read(lambda session, name=table.name: session.scalar(statement, {"name": name}))
        described = str(CreateTable(table).compile(sqlite_database.engine))
        assert _checks(str(made)) == _checks(described)
        assert _checks(described)


def _checks(statement: str) -> set[str]:
    lines = (line.strip().rstrip(",") for line in statement.splitlines())
    return {line for line in lines if "CHECK" in line}


@pytest.mark.case("G08")
def test_only_our_tables_are_made(database: Database) -> None:
    with database.engine.connect() as connection:
        names = set(inspect(connection).get_table_names())
    assert names == {*Base.metadata.tables, VERSION_TABLE}
    assert all(name.startswith("tuner_") for name in names)


@pytest.mark.case("G08")
def test_other_tools_tables_stay_as_they_are(empty_url: str) -> None:
    database = Database.open(empty_url)
    with database.transaction() as session:
        session.execute(text("CREATE TABLE alembic_version (version_num varchar(32) NOT NULL)"))
        session.execute(text("INSERT INTO alembic_version VALUES ('zzz')"))
        session.execute(text("CREATE TABLE studies (id integer)"))
    assert (database.migrate(), database.check()) == ("missing", "current")
    with database.engine.connect() as connection:
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == "zzz"
        assert inspect(connection).has_table("studies")
    database.close()


def test_going_back_and_forth(database: Database) -> None:
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    config.set_main_option("path_separator", "os")

    def downgrade(session: object) -> None:
        config.attributes["connection"] = session.connection()  # type: ignore[attr-defined]
        command.downgrade(config, "base")

    database.write(downgrade)
    assert (database.check(), database.migrate(), database.check()) == ("missing", "missing", "current")
