"""The database's clock: leases are counted by it alone, so that no worker's own time matters."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, func, literal, select, type_coerce
from sqlalchemy.orm import Session

from storage.types import Utc, now


def clock_column(session: Session) -> ColumnElement[datetime]:
    """The database's time as a column; an embedded store has one host, whose clock it is."""
    if session.get_bind().dialect.name == "postgresql":
        return type_coerce(func.clock_timestamp(), Utc)
    return literal(now(), Utc)


def clock(session: Session) -> datetime:
    """The database's time, in UTC."""
    moment: datetime = session.execute(select(clock_column(session))).scalar_one()
    return moment


def server_started(session: Session) -> datetime | None:
    """When the server was started, by its own clock; None for an embedded store, which has no server."""
    if session.get_bind().dialect.name != "postgresql":
        return None
    moment: datetime = session.execute(select(type_coerce(func.pg_postmaster_start_time(), Utc))).scalar_one()
    return moment
