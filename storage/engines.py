"""How connections are made: few, checked before use, named on the server; SQLite safe for several processes at once."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, Connection, Engine

from storage.errors import StoreUnavailable
from storage.plain import to_json

BUSY_SECONDS = 30.0
"""How long a writer of an embedded store waits for the others."""
IDLE_SECONDS = 10
"""How long the server lets a transaction of ours wait for its client: a worker that is stopped, or whose machine is
gone, must not keep a study's row locked from all others. What is rolled back so is done again."""
WRITES = "tuner_writes"
"""Execution option of connections that will write: SQLite must then take the write lock at BEGIN.

A transaction that reads first and writes later fails at once with "database is locked" when another process wrote in
between, however long it would wait (https://www.sqlite.org/isolation.html, SQLITE_BUSY_SNAPSHOT).
"""


def make_engine(url: URL, *, application_name: str, connections: int = 2) -> Engine:
    """The engine for one store. Connects to nothing on a server; makes the file of an embedded store if needed.

    Raises:
        StoreUnavailable: The file of an embedded store cannot be made.
    """
    if url.get_backend_name() == "sqlite":
        return _sqlite_engine(url)
    return _postgresql_engine(url, application_name, connections)


def _postgresql_engine(url: URL, application_name: str, connections: int) -> Engine:
    """Three connections at most, ``connections`` of them kept open when idle. The URL's own options win."""
    defaults: dict[str, Any] = {
        "application_name": application_name,
        "connect_timeout": 10,
        "keepalives": 1,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "client_encoding": "utf8",
    }
    engine = create_engine(
        url,
        pool_size=connections,
        max_overflow=3 - connections,
        pool_timeout=30,
        pool_pre_ping=True,
        connect_args={name: value for name, value in defaults.items() if name not in url.query},
        hide_parameters=True,
        json_serializer=to_json,
        json_deserializer=json.loads,
    )
    event.listen(engine, "connect", _bound_idle_transactions)
    return engine


def _bound_idle_transactions(connection: Any, _record: object) -> None:
    """Set once connected and not as a start option: poolers refuse those, and the URL may have others."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'")
    connection.commit()


def _sqlite_engine(url: URL) -> Engine:
    path = Path(str(url.database))
    _make_file(path)
    engine = create_engine(
        url,
        connect_args={"timeout": BUSY_SECONDS},
        hide_parameters=True,
        json_serializer=to_json,
        json_deserializer=json.loads,
    )
    event.listen(engine, "connect", _prepare_connection)
    event.listen(engine, "begin", _begin)
    return engine


def _make_file(path: Path) -> None:
    """Makes the file readable by its owner alone. One that exists keeps its rights."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreUnavailable(f"the store {path} cannot be used: {error.strerror or error}") from error


def _prepare_connection(connection: sqlite3.Connection, _record: object) -> None:
    """Durable write-ahead log, foreign keys, and no transaction that Python begins by itself."""
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    _switch_to_write_ahead_log(connection)
    connection.execute("PRAGMA synchronous = FULL")


def _switch_to_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Only the first connection ever switches; while others do the same, SQLite does not wait by itself."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
