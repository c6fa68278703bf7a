"""Keeps what Optuna's own tools see up to date beside the work: one worker of a study does it, and it may lag."""

from __future__ import annotations

import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING

from storage import studies, workers
from storage.errors import StorageError
from tuner.errors import TightfitError
from tuner.search.projection import Projection

if TYPE_CHECKING:
    from storage.database import Database

LOGGER = logging.getLogger("tuner.projection")
EVERY_SECONDS = 5.0
SHARE = 0.05
"""Of the time: after a slow turn the next one waits longer."""
RECENT = timedelta(hours=1)
"""How far back an idle worker looks for studies that ended and whose last worker died before it had shown them."""


class Projector:
    """Adds finished trials to Optuna's copy of a study while the block runs; the eldest worker of the study does it.

    Args:
        database: The store.
        study_id: The study.
        worker_id: This worker.
    """

    def __init__(self, database: Database, study_id: int, worker_id: str) -> None:
        self._database, self._study_id, self._worker_id = database, study_id, worker_id
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="projection", daemon=True)

    def __enter__(self) -> Projector:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        projection, pause = Projection(self._database), EVERY_SECONDS
        while not self._ended.wait(pause):
            begun = time.monotonic()
            try:
                if is_eldest(self._database, self._worker_id, self._study_id):
                    projection.heal(self._study_id)
            except (StorageError, TightfitError) as error:
                LOGGER.warning(
                    "Optuna's copy is not up to date", extra={"study_id": self._study_id, "cause": str(error)}
                )
            pause = max(EVERY_SECONDS, (time.monotonic() - begun) / SHARE)


def is_eldest(database: Database, worker_id: str, study_id: int | None = None) -> bool:
    """Whether a worker is the first of those that live (and work on the study): the one that keeps house."""
    living = workers.list_all(database, study_id=study_id)
    return bool(living) and living[0].id == worker_id


def settle_recent(database: Database, settled: set[int]) -> None:
    """Shows the studies that ended lately and are not in ``settled``, which they join. For an idle worker."""
    since = datetime.now(UTC) - RECENT
    for study in studies.list_all(database, limit=20):
        if study.id in settled or study.finished_at is None or study.finished_at < since:
            continue
        settled.add(study.id)
        Projection(database).heal(study.id)
