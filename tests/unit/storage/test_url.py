from __future__ import annotations

from pathlib import Path

import psycopg2.extensions
import pytest
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2

from storage.database import Database
from storage.errors import StoreUnavailable
from storage.url import normalise_url, safe_url, secret_of

EXPECTED = {"user": "ann", "password": "pw", "host": "db", "port": 5433, "dbname": "tuner"}


def arguments(text: str) -> dict[str, object]:
    """What the driver gets."""
    return PGDialect_psycopg2().create_connect_args(normalise_url(text))[1]


@pytest.mark.parametrize(
    "text",
    [
        "postgres://ann:pw@db:5433/tuner",
        "postgresql://ann:pw@db:5433/tuner",
        "POSTGRESQL://ann:pw@db:5433/tuner",
        "postgresql+psycopg2://ann:pw@db:5433/tuner",
        "postgresql+psycopg://ann:pw@db:5433/tuner",
        "postgresql+asyncpg://ann:pw@db:5433/tuner",
        "postgres+psycopg://ann:pw@db:5433/tuner",
        "  'postgresql://ann:pw@db:5433/tuner'\n",
        "host=db port=5433 user=ann password=pw dbname=tuner",
        "dbname = tuner host=db port=5433 user='ann' password='pw'",
        "jdbc:postgresql://ann:pw@db:5433/tuner",
    ],
)
def test_every_spelling_is_one_database_on_one_driver(text: str) -> None:
    assert normalise_url(text).drivername == "postgresql+psycopg2"
    assert {name: _number(value) for name, value in arguments(text).items()} == EXPECTED


def _number(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isdigit() else value


@pytest.mark.parametrize(
    "password",
    ["p@ss", "p@ss/w:rd#1%", "a?b", "?@/:#", "%", "100%25", "ünï", "[x]", "sl//ash@@", "{curly}", "a b+c", "pw@db:1/x"],
)
def test_passwords_with_any_characters_written_raw(password: str) -> None:
    found = normalise_url(f"postgres://ann:{password.replace('%25', '%2525')}@db:5433/tuner?sslmode=require")
    assert (found.username, found.password, found.host, found.port) == ("ann", password, "db", 5433)
    assert (found.database, dict(found.query)) == ("tuner", {"sslmode": "require"})


@pytest.mark.parametrize("password", ["p@ss/w:rd#1%", "?@/:#", "[x]{y}", "a b+c", "ünï"])
def test_what_was_read_can_be_written_and_read_again(password: str) -> None:
    found = normalise_url("postgres://ann@db/tuner").set(password=password)
    assert normalise_url(found.render_as_string(hide_password=False)) == found


@pytest.mark.parametrize(
    ("text", "host", "port", "query"),
    [
        ("postgres://db", "db", None, {}),
        ("postgres://db/tuner?sslmode=verify-full&sslrootcert=/a%20b", "db", None,
         {"sslmode": "verify-full", "sslrootcert": "/a b"}),
        ("postgres://[::1]:5433/tuner", "::1", 5433, {}),
        ("postgres:///tuner", None, None, {}),
        ("postgres:///tuner?host=/run/postgresql", None, None, {"host": "/run/postgresql"}),
        ("postgres://%2Frun%2Fpostgresql/tuner", None, None, {"host": "/run/postgresql"}),
        ("postgres://a:1,b:2/tuner", None, None, {"host": ("a:1", "b:2")}),
        ("postgres://db/tuner?application_name=ann@home", "db", None, {"application_name": "ann@home"}),
    ],
)  # fmt: skip
def test_hosts_sockets_and_options(text: str, host: str | None, port: int | None, query: dict[str, str]) -> None:
    found = normalise_url(text)
    assert (found.host, found.port, dict(found.query)) == (host, port, query)


def test_several_hosts_reach_the_driver() -> None:
    given = arguments("host=a,b port=1,2 dbname=tuner")
    assert (given["host"], given["port"]) == ("a,b", "1,2")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("sqlite:///here/tuner.db", "here/tuner.db"),
        ("sqlite:////tmp/tuner.db", "/tmp/tuner.db"),
        ("sqlite+pysqlite:////tmp/tuner.db?cache=shared", "/tmp/tuner.db"),
        ("runs/tuner.db", "runs/tuner.db"),
        ("/tmp/tuner.SQLITE3", "/tmp/tuner.SQLITE3"),
        ("sqlite:////tmp/a%20b.db", "/tmp/a b.db"),
    ],
)
def test_files(text: str, path: str) -> None:
    assert normalise_url(text).database == str(Path(path).absolute())


def test_no_address_is_the_users_own_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path))
    assert normalise_url(None).database == normalise_url("  ").database == str(tmp_path / "tuner.db")
    monkeypatch.delenv("TUNER_DATA_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert "tightfit" in str(normalise_url(None).database)


@pytest.mark.parametrize(
    "text",
    ["mysql://u:hunter2@h/d", "hunter2", "sqlite://", "sqlite:///:memory:", "host=a password=hunter2 oops",
     "postgres://u:hunter2@h:port/d", "postgres://u:hunter2@h:99999/d", "postgres://u:hunter2@a:b:c/d"],
)  # fmt: skip
def test_what_is_no_store_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        normalise_url(text)
    assert "hunter2" not in str(caught.value)
    assert len(str(caught.value)) > 20


@pytest.mark.parametrize(
    "text",
    ["postgres://ann:hunter2@db/tuner", "postgres://ann@db/tuner?password=hunter2", "host=db password=hunter2",
     "postgres://db/tuner?sslpassword=hunter2"],
)  # fmt: skip
def test_no_password_is_ever_shown(text: str) -> None:
    url = normalise_url(text)
    database = Database(url)
    for shown in (safe_url(url), repr(database), str(database), database.safe_url):
        assert "hunter2" not in shown
        assert "db" in shown
    assert secret_of(url) == "hunter2"


def test_an_embedded_store_is_shown_as_its_path() -> None:
    assert safe_url(normalise_url("/tmp/a b.db")) == "/tmp/a b.db"


def test_the_driver_understands_our_idea_of_a_dsn() -> None:
    assert psycopg2.extensions.parse_dsn("host=a password='x y'") == {"host": "a", "password": "x y"}
