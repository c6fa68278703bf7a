from __future__ import annotations

import pytest
from sqlalchemy import exc

from storage.errors import SchemaMismatch, StoreUnavailable, is_lost_connection, is_transient, translated


class DriverError(Exception):
    """What a driver raises: a text, and PostgreSQL's code."""

    def __init__(self, text: str, pgcode: str | None = None) -> None:
        self.pgcode = pgcode
        super().__init__(text)


def wrapped(text: str, code: str | None = None, *, lost: bool = False) -> exc.DBAPIError:
    return exc.OperationalError("SELECT 1", {}, DriverError(text, code), connection_invalidated=lost)


@pytest.mark.case("G07")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (wrapped("deadlock detected", "40P01"), True),
        (wrapped("could not serialize access", "40001"), True),
        (wrapped("FATAL:  sorry, too many clients already"), True),
        (wrapped("FATAL:  remaining connection slots are reserved"), True),
        (wrapped("FATAL:  the database system is starting up"), True),
        (wrapped('FATAL:  password authentication failed for user "ann"'), False),
        (wrapped("syntax error", "42601"), False),
        (exc.TimeoutError("QueuePool limit reached"), False),
    ],
)
def test_what_passes_by_itself(error: exc.SQLAlchemyError, expected: bool) -> None:
    assert is_transient(error) is expected


def test_a_lost_connection() -> None:
    assert is_lost_connection(wrapped("server closed the connection unexpectedly", lost=True))
    assert not is_lost_connection(wrapped("out of shared memory"))
    assert not is_lost_connection(exc.TimeoutError("QueuePool limit reached"))


@pytest.mark.case("G04")
def test_the_drivers_own_words_in_one_line_with_a_way_out() -> None:
    error = wrapped('connection to server at "db" failed:\n FATAL:  sorry, too many clients already\n')
    shown = translated(error, place="postgresql://ann:***@db/tuner")
    assert isinstance(shown, StoreUnavailable)
    assert "FATAL: sorry, too many clients already; raise max_connections" in str(shown)
    assert "\n" not in str(shown)
    assert "SELECT" not in str(shown)


def test_a_driver_that_prints_the_password_is_corrected() -> None:
    shown = translated(wrapped('invalid dsn "password=hunter2"'), place="db", secret="hunter2")
    assert "hunter2" not in str(shown)
    assert "***" in str(shown)


@pytest.mark.parametrize(
    "error",
    [
        wrapped("no such table: tuner_study"),
        wrapped('relation "tuner_study" does not exist', "42P01"),
        wrapped("column does not exist", "42703"),
    ],
)
def test_missing_tables_name_the_command(error: exc.DBAPIError) -> None:
    shown = translated(error, place="db")
    assert isinstance(shown, SchemaMismatch)
    assert "tuner db migrate" in str(shown)


def test_an_error_without_words_has_its_name() -> None:
    assert "DriverError" in str(translated(wrapped(""), place="db"))
