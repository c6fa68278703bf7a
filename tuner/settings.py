"""Everything Tightfit reads from the environment, in one place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tuner.errors import StoreError, TightfitError


@dataclass(frozen=True, kw_only=True)
class Variable:
    """One environment variable: what it means and what holds without it."""

    name: str
    meaning: str
    default: str


VARIABLES: tuple[Variable, ...] = (
    Variable(
        name="TUNER_DATABASE_URL",
        meaning="The store, as an SQLAlchemy URL: `postgresql://user:password@host/name` (any common spelling) or "
        "`sqlite:///file`.",
        default="one SQLite file in the data folder",
    ),
    Variable(
        name="TUNER_DATABASE_URL_FILE",
        meaning="A file that holds that URL, for credentials kept out of the environment. Not both.",
        default="not read",
    ),
    Variable(
        name="TUNER_DATA_DIR",
        meaning="The data folder: the embedded store and the results on their way to it.",
        default="the user's data folder of the operating system",
    ),
    Variable(
        name="TUNER_CACHE_DIR",
        meaning="The cache folder: tokenizers, indexes and cached tokens. May be deleted between studies.",
        default="the user's cache folder of the operating system",
    ),
    Variable(
        name="TUNER_ALLOWED_FILE",
        meaning="The operator's list of what a service worker may run: a YAML file (`tuner worker --allowed`).",
        default="built-in objectives on models given by their configuration and `stdlib` data",
    ),
    Variable(
        name="TUNER_LEASE_SECONDS",
        meaning="A worker that says nothing for so long counts as lost; its runs end themselves by then. At least 1.",
        default="60",
    ),
    Variable(
        name="TUNER_DRAIN_SECONDS",
        meaning="How long a worker's run may go on after the first SIGTERM; the second one ends it at once.",
        default="30",
    ),
    Variable(name="NO_COLOR", meaning="Any value: no colours on the terminal.", default="colours on a terminal"),
)
"""All variables, in the order of the reference."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where things are kept.

    Attributes:
        database_url: The store's URL as given, never shown (it may hold a password); None for the embedded store.
        data_dir: Folder of the embedded store and of results on their way to it.
        cache_dir: Folder of what objectives prepare.
        allowed_file: The operator's list; None for the default one.
        lease_seconds: A worker that says nothing for so long counts as lost.
        drain_seconds: How long a worker's run may go on after the first request to end.
    """

    database_url: str | None = field(default=None, repr=False)
    data_dir: Path
    cache_dir: Path
    allowed_file: Path | None = None
    lease_seconds: float = 60.0
    drain_seconds: float = 30.0

    @property
    def store_url(self) -> str:
        """The URL of the store: the one given, else that of the embedded file."""
        return self.database_url or f"sqlite:///{self.data_dir / 'tightfit.db'}"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Reads the variables; nothing is created on disk. An empty value counts as not set.

        Args:
            environment: The variables; None for those of this process.

        Raises:
            StoreError: Both ways to name the store are used, or the file that names it cannot be read.
            TightfitError: A number is none.
        """
        given = os.environ if environment is None else environment
        return cls(
            database_url=_database_url(given),
            data_dir=_folder(given, "TUNER_DATA_DIR") or _platform_folder("user_data_dir"),
            cache_dir=_folder(given, "TUNER_CACHE_DIR") or _platform_folder("user_cache_dir"),
            allowed_file=_folder(given, "TUNER_ALLOWED_FILE"),
            lease_seconds=_seconds(given, "TUNER_LEASE_SECONDS", default=60.0, least=1.0),
            drain_seconds=_seconds(given, "TUNER_DRAIN_SECONDS", default=30.0, least=0.0),
        )


def _seconds(environment: Mapping[str, str], name: str, *, default: float, least: float) -> float:
    text = environment.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value < float("inf"):
        raise TightfitError(f"{name} is {text!r}: it takes seconds, at least {least:g}")
    return value


def _database_url(environment: Mapping[str, str]) -> str | None:
    url = environment.get("TUNER_DATABASE_URL", "").strip()
    file = environment.get("TUNER_DATABASE_URL_FILE", "").strip()
    if url and file:
        raise StoreError("TUNER_DATABASE_URL and TUNER_DATABASE_URL_FILE are both set: keep one of them")
    return _first_line(Path(file)) if file else url or None


def _first_line(file: Path) -> str:
    try:
        lines = file.expanduser().read_text(encoding="utf-8").strip().splitlines()
    except (OSError, ValueError) as error:
        raise StoreError(f"TUNER_DATABASE_URL_FILE names {file}, which cannot be read: {error}") from error
    if not lines:
        raise StoreError(f"TUNER_DATABASE_URL_FILE names {file}, which is empty: it must hold the store's URL")
    return lines[0].strip()


def _folder(environment: Mapping[str, str], name: str) -> Path | None:
    value = environment.get(name, "").strip()
    return Path(value).expanduser().absolute() if value else None


def _platform_folder(which: str) -> Path:
    import platformdirs

    return Path(getattr(platformdirs, which)("tightfit", appauthor=False))
