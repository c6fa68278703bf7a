"""A worker's second thread: renews its lease, hears what people did to its study, looks after what others left."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from storage import recovery, runs, studies, trials, workers
from storage.errors import NotFound, StorageError

if TYPE_CHECKING:
    from storage.database import Database
    from storage.records import Beat
    from tuner.work.advance import Advance
    from tuner.work.leaving import Why
    from tuner.work.session import Session

LOGGER = logging.getLogger("tuner.heartbeat")
LOOK_SECONDS = 1.0
"""How often the study's status is looked at."""
BEATS_PER_LEASE = 6
SAVE_SECONDS = 5.0
"""How often the time spent is added to the study."""
NOTE_SECONDS = 1.0
"""How far the runs in progress have come is written at most so often."""
LEFT_FOR: Mapping[str | None, Why] = {
    None: "deleted", "paused": "paused", "cancelled": "cancelled", "finished": "ended", "failed": "ended",
}  # fmt: skip
"""Why a worker leaves a study of that status."""


class Heartbeat:
    """Beats while the block runs; a store that is away is tried again at the next beat.

    Args:
        database: The store.
        worker_id: This process in it.
        lease_seconds: Its lease.
        session: The session it beats for from the start; a service worker sets it as it claims studies.

    Attributes:
        session: Whose study's status is heard; None between two studies.
        lost: Whether this worker has been declared lost.
        quarantined: Whether its device is out of service.
        heard_at: ``time.monotonic()`` of the last answer of the store.
        errors: Beats that the store did not answer.
    """

    def __init__(
        self, database: Database, worker_id: str, *, lease_seconds: float, session: Session | None = None
    ) -> None:
        self._database, self._worker_id = database, worker_id
        self._every = lease_seconds / BEATS_PER_LEASE
        self._look = min(LOOK_SECONDS, self._every)
        self._beat_at = self._saved_at = self._noted_at = time.monotonic()
        self._noted: Mapping[str, Advance] = {}
        self._drained = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self.session = session
        self.lost = self.quarantined = False
        self.heard_at, self.errors = time.monotonic(), 0

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        try:
            workers.retire(self._database, self._worker_id)
        except StorageError as error:  # its lease ends by itself
            LOGGER.warning("the worker could not be retired", extra={"cause": str(error)})

    def _run(self) -> None:
        while not self._ended.wait(self._look):
            try:
                self._once()
            except NotFound:
                self._lose("deleted")
            except StorageError as error:
                self.errors += 1
                LOGGER.warning("no heartbeat", extra={"cause": str(error), "worker": self._worker_id})
            except Exception:
                LOGGER.exception("the heartbeat failed", extra={"worker": self._worker_id})

    def _once(self) -> None:
        session, now = self.session, time.monotonic()
        if now - self._beat_at >= self._every:
            self._hear(workers.beat(self._database, self._worker_id, runs=sorted(session.running) if session else ()))
            self._beat_at = now
            found = recovery.recover(self._database, self._worker_id)
            if found.workers or found.runs:
                LOGGER.warning("declared lost", extra={"workers": found.workers, "runs": found.runs})
            close_of_ended(self._database, found.trials)
        if session is None:
            return
        if session.stop.process.is_set() and not self._drained:
            self._drained = True
            workers.drain(self._database, self._worker_id)
        status = studies.status_of(self._database, session.study.id)
        self.heard_at = time.monotonic()
        if (why := LEFT_FOR.get(status)) is not None and (status is None or not session.after_its_end):
            session.stop.leave(why)
        elif now - self._saved_at >= SAVE_SECONDS and not session.after_its_end:
            self._saved_at = now
            session.workers = max(1, len(workers.list_all(self._database, study_id=session.study.id)))
            session.save_seconds()
        self._note_progress(session, now)

    def _note_progress(self, session: Session, now: float) -> None:
        """Writes how far the runs have come that have come further; the runs themselves wait for nothing."""
        if now - self._noted_at < NOTE_SECONDS:
            return
        self._noted_at, seen = now, dict(session.advances)
        further = {run: each.to_mapping() for run, each in seen.items() if self._noted.get(run) is not each}
        runs.note_progress(self._database, further)
        self._noted = seen

    def _hear(self, beat: Beat) -> None:
        self.heard_at = time.monotonic()
        self.quarantined = beat.worker.status == "quarantined"
        if beat.worker.ended_at is not None:
            self._lose("lost")
        elif self.session is not None:
            self.session.taken_away.update(beat.taken_away)
            if self.quarantined:
                self.session.stop.leave("quarantined")

    def _lose(self, why: Why) -> None:
        self.lost = True
        if self.session is not None:
            self.session.stop.leave(why)


def close_of_ended(database: Database, freed: Sequence[int]) -> None:
    """Trials that a dead worker left open in a study that has ended end with it: nobody will try them again."""
    for trial in trials.by_ids(database, freed):
        if trial.outcome is None and studies.status_of(database, trial.study_id) in studies.ENDED:
            trials.finish(database, trial.id, outcome="cancelled", evidence={"text": "its study had ended"})
