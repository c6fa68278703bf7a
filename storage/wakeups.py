"""Waking whoever waits for work: NOTIFY where there is a server, looking now and then where there is none.

A wake-up is a hint and may be lost (a cut connection, a pooler that does not pass it on): whoever waits looks again
after each :meth:`Wakeups.wait` whatever it says.
"""

from __future__ import annotations

import select
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sqlalchemy import exc, text
from sqlalchemy.orm import Session

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from storage.database import Database

CHANNEL = "tuner_queue"
POLL_SECONDS = 0.25
"""How often an embedded store is looked at, or a server that cannot be listened to."""
AGAIN_SECONDS = 5.0
"""Pause before listening is tried again after it failed."""


def announce(session: Session) -> None:
    """Wakes all who wait, once the transaction is committed. For changes made by people: each one costs a lock."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_notify(:channel, '')"), {"channel": CHANNEL})


def _readable(descriptor: int, seconds: float) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(max(seconds, 0.0) * 1000))


class Wakeups:
    """Waits for changes that people make. Holds one of the store's connections while it is open.

    To be used by one thread, and closed by it. A worker's store (:func:`storage.workers.open_store`) counts it in.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: Connection | None = None
        self._not_before = 0.0

    def __enter__(self) -> Wakeups:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives the connection back."""
        if self._connection is not None:
            # A pooled connection must not go on listening for its next user.
            self._connection.invalidate()
            self._connection.close()
            self._connection = None

    def wait(self, seconds: float) -> bool:
        """Waits for a change, at most so long; look at the store afterwards in either case.

        The first call, and the first after listening was interrupted, return at once.

        Returns:
            Whether something may have changed.
        """
        if self._database.embedded:
            time.sleep(min(seconds, POLL_SECONDS))
            return True
        known = self._connection
        listening = self._listen()
        if listening is None:
            time.sleep(min(seconds, POLL_SECONDS))
            return True
        return known is None or self._wait(listening, seconds)

    def _listen(self) -> Connection | None:
        """The connection that listens; None while none can be had."""
        if self._connection is None and time.monotonic() >= self._not_before:
            try:
                made = self._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                self._connection = made
                made.execute(text(f"LISTEN {CHANNEL}"))
            except exc.SQLAlchemyError:
                self._fail()
        return self._connection

    def _fail(self) -> None:
        self._not_before = time.monotonic() + AGAIN_SECONDS
        self.close()

    def _wait(self, listening: Connection, seconds: float) -> bool:
        driver: Any = listening.connection.dbapi_connection
        try:
            if not driver.notifies and _readable(driver.fileno(), seconds):
                driver.poll()
                if not driver.notifies:  # the server said something else: perhaps farewell, which poll does not tell
                    listening.execute(text("SELECT 1"))
            woken = bool(driver.notifies)
            driver.notifies.clear()
        except (self._database.engine.dialect.loaded_dbapi.Error, exc.SQLAlchemyError, OSError):
            self._fail()
            return True
        return woken
