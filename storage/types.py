"""Column types: what goes in is made plain, what comes out is what the records promise."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Double, Integer, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from storage import plain

KEY = BigInteger().with_variant(Integer(), "sqlite")
"""Primary and foreign keys. SQLite numbers rows by itself only in a column of type INTEGER."""


class Document(TypeDecorator[Any]):
    """JSON that may be searched: JSONB on PostgreSQL. The order of keys is not kept."""

    impl = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """Standard JSON only."""
        return plain.plain_json(value)


class OrderedDocument(TypeDecorator[Any]):
    """JSON kept as it was written, the order of keys included (a spec's knobs come in a fixed order)."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """Standard JSON only."""
        return plain.plain_json(value)


class PlainText(TypeDecorator[str]):
    """Text of any length without NUL and lone surrogates."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """The text a database takes."""
        return None if value is None else plain.plain_text(str(value))


class Real(TypeDecorator[float]):
    """A finite number of double precision; NaN and infinity become null."""

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> float | None:
        """A finite number or null."""
        return plain.plain_real(value)


class Whole(TypeDecorator[int]):
    """A whole number of 64 bits (bytes, counts); what is none becomes null."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> int | None:
        """A whole number or null."""
        return plain.plain_integer(value)


class Utc(TypeDecorator[datetime]):
    """A moment, timezone-aware and in UTC on both sides."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> datetime | None:
        """UTC; naive for SQLite, which keeps no zone."""
        if value is None:
            return None
        moment: datetime = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Aware, in UTC."""
        if value is None:
            return None
        moment: datetime = value
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def now() -> datetime:
    """This machine's time in UTC, to the microsecond."""
    return datetime.now(UTC)
