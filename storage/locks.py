"""Named locks between processes. Whoever dies gives his back: the server's session or the file's descriptor goes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

POLL_SECONDS = 0.05


def lock_key(name: str) -> int:
    """The number of a name for PostgreSQL's advisory locks (64 bits, signed)."""
    digest = hashlib.blake2b(f"tightfit:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


@contextmanager
def server_lock(engine: Engine, name: str, *, wait_seconds: float) -> Iterator[bool]:
    """An advisory lock of one PostgreSQL session. It occupies one connection while it is held.

    A connection that is cut takes the lock with it; the holder is not told.
    """
    key = lock_key(name)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        held = _wait(lambda: bool(connection.scalar(select(func.pg_try_advisory_lock(key)))), wait_seconds)
        try:
            yield held
        finally:
            if held and not connection.invalidated:
                # Ending the session is the release that cannot fail: a pooled connection must not keep the lock.
                connection.invalidate()


def hold(session: Session, name: str) -> None:
    """Takes a named lock until the session's transaction ends; in an embedded store the transaction is that lock."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(lock_key(name))))


@contextmanager
def file_lock(database: Path, name: str, *, wait_seconds: float) -> Iterator[bool]:
    """A lock on a file of its own beside an embedded store."""
    folder = database.with_name(f"{database.name}.locks")
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder / f"{lock_key(name) & (2**64 - 1):016x}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _wait(lambda: _try_file(descriptor), wait_seconds)
    finally:
        os.close(descriptor)


def _try_file(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait(attempt: Callable[[], bool], wait_seconds: float) -> bool:
    deadline = time.monotonic() + wait_seconds
    while not attempt():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
