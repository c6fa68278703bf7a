"""Opening the store for one call: its errors become the person's, its connections are given back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from storage.database import Database
from storage.errors import NotAllowed, NotFound, StorageError
from tuner.errors import StoreError, StudyError
from tuner.settings import Settings


@contextmanager
def opened_database(settings: Settings | None = None, *, application_name: str = "tuner") -> Iterator[Database]:
    """The store of the settings, whatever its schema.

    Args:
        settings: Which; None reads the environment.
        application_name: What ``pg_stat_activity`` shows.

    Raises:
        StudyError: There is no such study, or its status does not allow what was asked.
        StoreError: Anything else about the store.
    """
    settings = settings or Settings.from_environment()
    database: Database | None = None
    try:
        database = Database.open(settings.store_url, application_name=application_name)
        yield database
    except (NotFound, NotAllowed) as error:
        raise StudyError(str(error)) from error
    except StorageError as error:
        raise StoreError(str(error)) from error
    finally:
        if database is not None:
            database.close()


@contextmanager
def opened_store(settings: Settings | None = None, *, application_name: str = "tuner") -> Iterator[Database]:
    """The same, with this version's schema in it."""
    with opened_database(settings, application_name=application_name) as database:
        database.prepare()
        yield database
