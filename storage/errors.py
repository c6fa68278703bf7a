"""What can go wrong with the store, and the words for it.

StorageError
├── StoreUnavailable     it cannot be reached or refuses: the root cause's own text, never a password
├── SchemaMismatch       its tables are missing, older or newer than this version: names the command that mends it
├── InvalidName          a study's name that no store should hold
├── NameTaken            another study has this name
├── NotFound             no such study, trial, run or worker
├── NotAllowed           a study's status does not allow what was asked: names the status and the way out
└── AlreadyFinished      it has another outcome already; the first one stays
"""

from __future__ import annotations

from sqlalchemy import exc

TRANSIENT_CODES = frozenset({"40001", "40P01"})
"""PostgreSQL: serialization failure and deadlock. The transaction is rolled back for certain."""
BUSY_TEXTS = ("too many clients", "too many connections", "connection slots are reserved", "starting up")
"""Refusals at connecting that pass by themselves (psycopg2 gives no code there)."""
MISSING_TABLE_TEXTS = ("no such table: tuner_", "no such column: tuner_", "has no column named")
MISSING_TABLE_CODES = frozenset({"42P01", "42703"})


class StorageError(Exception):
    """Something about the store, in one line for a person."""


class StoreUnavailable(StorageError):
    """The store cannot be reached or refuses the work."""


class SchemaMismatch(StorageError):
    """The store's tables are not the ones this version works with."""


class InvalidName(StorageError):
    """A study's name is empty, too long or not printable."""


class NameTaken(StorageError):
    """A study of this name exists."""


class NotFound(StorageError):
    """No such study, trial, run or worker."""


class NotAllowed(StorageError):
    """A study's status does not allow what was asked."""


class AlreadyFinished(StorageError):
    """A trial or run has an outcome already, and it is another one.

    Attributes:
        outcome: The outcome that stays.
    """

    def __init__(self, what: str, outcome: str) -> None:
        self.outcome = outcome
        super().__init__(f"{what} has ended already, as {outcome}")


def root_cause(error: BaseException) -> str:
    """The driver's own words on one line; the class's name where it has none."""
    original = getattr(error, "orig", None) or error
    return " ".join(str(original).split()) or type(original).__name__


def is_transient(error: exc.SQLAlchemyError) -> bool:
    """Whether the same work may well succeed in a moment, and surely has not happened yet."""
    if not isinstance(error, exc.DBAPIError):
        return False
    if getattr(error.orig, "pgcode", None) in TRANSIENT_CODES:
        return True
    return any(text in root_cause(error) for text in BUSY_TEXTS)


def is_lost_connection(error: exc.SQLAlchemyError) -> bool:
    """Whether the connection died: rolled back for certain unless a COMMIT was on its way."""
    return isinstance(error, exc.DBAPIError) and error.connection_invalidated


def translated(error: exc.SQLAlchemyError, *, place: str, secret: str | None = None) -> StorageError:
    """The error for people.

    Args:
        error: What SQLAlchemy raised.
        place: The store's URL without secrets.
        secret: The password, cut out should a driver ever print it; None without one.
    """
    cause = root_cause(error)
    if secret and len(secret) > 3:
        cause = cause.replace(secret, "***")
    code = getattr(getattr(error, "orig", None), "pgcode", None)
    if code in MISSING_TABLE_CODES or any(text in cause for text in MISSING_TABLE_TEXTS):
        return SchemaMismatch(f"the store {place} lacks tables of this version ({cause}); run `tuner db migrate`")
    return StoreUnavailable(f"the store {place} cannot be used: {cause}{_way_out(cause)}")


def _way_out(cause: str) -> str:
    """A hint for the refusals people meet most; empty for the others."""
    hints = {
        "too many clients": "; raise max_connections on the server, or run fewer workers",
        "connection slots are reserved": "; raise max_connections on the server, or run fewer workers",
        "password authentication failed": "; check user and password in TUNER_DATABASE_URL",
        "no password supplied": "; put the password into TUNER_DATABASE_URL",
        "does not exist": "; create it, or check the name in TUNER_DATABASE_URL",
        "unable to open database file": "; check that its folder exists and is writable",
        "file is not a database": "; name another file",
    }
    return next((hint for text, hint in hints.items() if text in cause), "")
