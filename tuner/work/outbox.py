"""Results on their way to the store: first a file of this machine, then the store, then the file goes.

Whatever dies in between, the file is delivered by the next worker that starts here. Delivering twice changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from storage import runs
from storage.database import Database
from storage.errors import AlreadyFinished, NotFound
from storage.plain import plain_json, to_json
from storage.records import RunEnd, TrialEnd

VERSION = 1
LOGGER = logging.getLogger("tuner.outbox")


@dataclass(frozen=True, kw_only=True)
class Result:
    """How one run ended, and its trial where that ends with it.

    Attributes:
        run: The run's id.
        outcome: Of the run, and of the trial where there is one.
        fields: What else its row keeps.
        trial_id: The trial that ends with it; None when none does.
        trial: What else the trial's row keeps.
    """

    run: str
    outcome: str
    fields: RunEnd = field(default_factory=RunEnd)
    trial_id: int | None = None
    trial: TrialEnd = field(default_factory=TrialEnd)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Result:
        """From a file's JSON.

        Raises:
            KeyError, TypeError: No such mapping.
        """
        return cls(**{name: values[name] for name in ("run", "outcome", "fields", "trial_id", "trial")})


class Outbox:
    """The results of one store that wait on this machine.

    Args:
        folder: The data folder; every store has a folder of its own below it.
        database: Where they go.
    """

    def __init__(self, folder: Path, database: Database) -> None:
        key = hashlib.blake2b(database.safe_url.encode(), digest_size=6).hexdigest()
        self.folder = folder / "outbox" / key
        self._database = database

    def put(self, result: Result) -> Path:
        """Writes a result so that it survives whatever comes: aside, to the disk, then into its place."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{result.run}.json"
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        with aside.open("w", encoding="utf-8") as file:
            file.write(to_json(plain_json({"version": VERSION, **asdict(result)})))
            file.flush()
            os.fsync(file.fileno())
        aside.rename(path)
        _sync(self.folder)
        return path

    def waiting(self) -> tuple[Path, ...]:
        """The files that wait, oldest first."""
        found = [(path.stat().st_mtime, path) for path in self.folder.glob("*.json") if path.is_file()]
        return tuple(path for _, path in sorted(found))

    def deliver_all(self) -> int:
        """Delivers what waits; returns how many results that were.

        Raises:
            StoreUnavailable: The store is away; what was not delivered stays.
        """
        return sum(self.deliver(path) for path in self.waiting())

    def deliver(self, path: Path) -> bool:
        """Delivers one file and removes it; False where another process has done so, or it cannot be read.

        Raises:
            StoreUnavailable: The store is away; the file stays.
        """
        try:
            result = Result.from_mapping(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return False
        except (ValueError, KeyError, TypeError) as error:
            LOGGER.error("a result cannot be read and is set aside", extra={"file": str(path), "cause": str(error)})
            path.rename(path.with_suffix(".unreadable"))
            return False
        store(self._database, result)
        path.unlink(missing_ok=True)
        return True


def store(database: Database, result: Result) -> None:
    """Stores a run's end, with its trial's in the same transaction. The only place that does; twice is as once.

    A run that was declared lost keeps that outcome, and its result beside it; a trial that another run has ended stays.

    Raises:
        StoreUnavailable: The store is away.
    """
    try:
        runs.record_end(
            database, id=result.run, outcome=result.outcome, run=result.fields,
            trial_id=result.trial_id, trial=result.trial,
        )  # fmt: skip
    except NotFound:
        LOGGER.warning("a result belongs to no run any more: its study was deleted", extra={"run": result.run})
    except AlreadyFinished:
        _store_late(database, result)


def _store_late(database: Database, result: Result) -> None:
    known = runs.get(database, result.run)
    if known.outcome is None:  # the trial has another outcome: this run's own is kept
        runs.finish(database, result.run, outcome=result.outcome, **result.fields)
        return
    runs.keep_late(database, result.run, result={"outcome": result.outcome, **result.fields})


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
