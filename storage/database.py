"""One store: opened once a process, passed to every function of this package."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from sqlalchemy import exc
from sqlalchemy.engine import URL, Engine
from sqlalchemy.orm import Session

from storage import engines, locks, schema
from storage.errors import StorageError, is_lost_connection, is_transient, translated
from storage.schema import SchemaState
from storage.url import normalise_url, safe_url, secret_of

Result = TypeVar("Result")
PAUSES_SECONDS = (0.02, 0.05, 0.15, 0.4, 1.0)
"""Pauses before the further attempts of work that met a transient refusal or a connection that was cut."""


class Database:
    """A store, embedded (one SQLite file) or shared (PostgreSQL). Thread-safe; not to be used in a forked child."""

    def __init__(self, url: URL, *, application_name: str = "tuner", connections: int = 2) -> None:
        self.url = url
        self.safe_url = safe_url(url)
        self.engine: Engine = engines.make_engine(url, application_name=application_name, connections=connections)
        self._writer = self.engine.execution_options(**{engines.WRITES: True})

    def __repr__(self) -> str:
        return f"Database({self.safe_url!r})"

    @classmethod
    def open(cls, url: str | None = None, *, application_name: str = "tuner", connections: int = 2) -> Database:
        """The store a text names (:func:`storage.url.normalise_url`); the embedded one in the user's folder for None.

        Does not connect: the first use does, so a server that is down is noticed there.

        Args:
            url: Any common spelling.
            application_name: What ``pg_stat_activity`` shows.
            connections: How many it keeps to a server when idle, 1 to 3; it never has more than 3 at once.

        Raises:
            StoreUnavailable: The text names no store, or the embedded store's file cannot be made.
        """
        return cls(normalise_url(url), application_name=application_name, connections=connections)

    def close(self) -> None:
        """Gives every connection back."""
        self.engine.dispose()

    @property
    def embedded(self) -> bool:
        """Whether it is one SQLite file."""
        return self.engine.dialect.name == "sqlite"

    def read(self, work: Callable[[Session], Result]) -> Result:
        """Runs work that only reads, again if the connection was cut or the server was busy.

        Raises:
            StoreUnavailable: It cannot be reached or refuses.
            SchemaMismatch: Its tables are not ours.
        """
        return self._attempts(lambda: self._read_once(work))

    def write(self, work: Callable[[Session], Result], *, repeatable: bool = False) -> Result:
        """Runs work in one transaction, and again after a deadlock or a connection that was cut before COMMIT.

        Args:
            work: Called once per attempt; must have no effect outside the session.
            repeatable: Doing it twice is the same as once, so it may also be repeated when the connection was cut
                during COMMIT, where nobody knows whether it happened.

        Raises:
            StoreUnavailable: It cannot be reached or refuses.
            SchemaMismatch: Its tables are not ours.
        """
        return self._attempts(lambda: self._write_once(work, repeatable=repeatable))

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """One transaction that may write, tried once. Prefer :meth:`write`, which tries again."""
        try:
            with Session(self._writer) as session:
                yield session
                session.commit()
        except exc.IntegrityError:
            raise
        except exc.SQLAlchemyError as error:
            raise self.translated(error) from error

    @contextmanager
    def lock(self, name: str, *, wait_seconds: float = 0.0) -> Iterator[bool]:
        """Holds a named lock against all other processes and threads; yields whether it was got in time.

        It goes with the process that held it, however that dies. On PostgreSQL it occupies one connection of three.
        """
        try:
            with self._lock(name, wait_seconds) as held:
                yield held
        except exc.SQLAlchemyError as error:
            raise self.translated(error) from error

    def check(self) -> SchemaState:
        """Whether the tables are ``current``, ``missing``, ``old`` or ``newer``."""
        return self.read(lambda session: schema.schema_state(session.connection()))

    def require_schema(self) -> None:
        """Refuses a store that is not ready.

        Raises:
            SchemaMismatch: With the command that mends it.
        """
        state = self.check()
        if state != "current":
            raise schema.mismatch(state, self.safe_url)

    def migrate(self) -> SchemaState:
        """Makes or upgrades the tables; any number of processes may do it at once. Returns the state found before.

        Raises:
            SchemaMismatch: The tables are newer than this version.
        """
        before = self.check()
        if before != "current":
            self.write(lambda session: schema.upgrade(session.connection(), self.safe_url), repeatable=True)
        return before

    def prepare(self) -> None:
        """Makes a store ready that nobody else depends on: an empty one, or an embedded one of any older version.

        Raises:
            SchemaMismatch: A shared store of an older version (`tuner db migrate` mends it), or any newer one.
        """
        if self.embedded or self.check() == "missing":
            self.migrate()
        self.require_schema()

    def translated(self, error: exc.SQLAlchemyError) -> StorageError:
        """The error for people, without secrets."""
        return translated(error, place=self.safe_url, secret=secret_of(self.url))

    @contextmanager
    def _lock(self, name: str, wait_seconds: float) -> Iterator[bool]:
        if self.embedded:
            with locks.file_lock(Path(str(self.url.database)), name, wait_seconds=wait_seconds) as held:
                yield held
            return
        with locks.server_lock(self.engine, name, wait_seconds=wait_seconds) as held:
            yield held

    def _attempts(self, once: Callable[[], Result]) -> Result:
        for pause in PAUSES_SECONDS:
            try:
                return once()
            except exc.IntegrityError:
                raise
            except exc.SQLAlchemyError as error:
                if not (is_transient(error) or is_lost_connection(error)):
                    raise self.translated(error) from error
            time.sleep(pause * random.uniform(0.5, 1.5))
        try:
            return once()
        except exc.IntegrityError:
            raise
        except exc.SQLAlchemyError as error:
            raise self.translated(error) from error

    def _read_once(self, work: Callable[[Session], Result]) -> Result:
        with Session(self.engine) as session:
            return work(session)

    def _write_once(self, work: Callable[[Session], Result], *, repeatable: bool) -> Result:
        with Session(self._writer) as session:
            result = work(session)
            try:
                session.commit()
            except exc.SQLAlchemyError as error:
                if repeatable or is_transient(error):
                    raise
                raise self.translated(error) from error
            return result
