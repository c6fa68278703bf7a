"""A service worker: one process, one device, and whatever study is first in the queue."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from storage import queue, studies, workers
from storage.errors import StorageError
from storage.wakeups import Wakeups
from tuner import spec as specs
from tuner.errors import MachineError, TightfitError
from tuner.progress import Progress, TrialEnded
from tuner.spec.reading import cache_of
from tuner.work import logs
from tuner.work.allowed import Allowed, Refused, require_allowed
from tuner.work.health import Figures
from tuner.work.heartbeat import Heartbeat
from tuner.work.leaving import Leaving
from tuner.work.outbox import Outbox
from tuner.work.patience import patiently
from tuner.work.projecting import Projector, is_eldest, settle_recent
from tuner.work.registration import register
from tuner.work.session import Session
from tuner.work.study import join, lanes_for

if TYPE_CHECKING:
    from storage.database import Database
    from storage.records import StudyRecord
    from tuner.settings import Settings
    from tuner.spec.model import StudySpec
    from tuner.stop import Stop
    from tuner.work.lane import Device

LOGGER = logging.getLogger("tuner.worker")
IDLE_SECONDS = 0.8
"""An idle worker is woken at once; it looks by itself so often, should the call be lost."""
LOOK_SECONDS = 2.0
"""How often a working one looks whether something more urgent waits."""
REFUSED_SECONDS = 60.0
"""After so long a study that this worker refused is looked at again: its spec or the list may have changed."""
REST_SECONDS = 2.0
"""A study that has nothing for this worker just now is left alone for so long."""
QUARANTINE_SECONDS = 900.0
"""A quarantined device is tried again after so long; one more failure puts it back."""
HOUSEKEEPING_SECONDS = 30.0
FORGOTTEN_SECONDS = 30 * 86400.0
"""Workers that went so long ago are no longer listed."""

Answer = TypeVar("Answer")


@dataclass(kw_only=True)
class Worker:
    """Serves studies until it is asked to stop.

    Attributes:
        database: The store.
        device: What it owns; the seat is taken.
        settings: Folders, lease, grace.
        allowed: The operator's list.
        stop: The first request drains, the second ends the run in progress at once.
        figures: What it counts.
    """

    database: Database
    device: Device
    settings: Settings
    allowed: Allowed
    stop: Stop
    figures: Figures
    _skip: dict[int, float] = field(default_factory=dict)
    _settled: set[int] = field(default_factory=set)
    _id: str = ""
    _looked_at: float = 0.0
    _infra: int = 0

    def serve(self) -> None:
        """Registers and works; registers anew after it was declared lost."""
        while not self.stop.is_set():
            try:
                self._live()
            except StorageError as error:
                if not self.stop.is_set():
                    LOGGER.error("the store refuses", extra={"cause": str(error), "worker": self._id})
                    self.stop.wait(REST_SECONDS)

    def _live(self) -> None:
        outbox = Outbox(self.settings.data_dir, self.database)
        record = self._patiently(
            lambda: register(
                self.database, self.device, lease_seconds=self.settings.lease_seconds,
                facts={"allowed": self.allowed.to_mapping()},
            )
        )  # fmt: skip
        self._id = record.id
        with Heartbeat(self.database, record.id, lease_seconds=self.settings.lease_seconds) as heartbeat:
            self._show(heartbeat, outbox)
            LOGGER.info("worker started", extra={"worker": self._id, "device": self.device.name, "host": record.host})
            while not self.stop.is_set() and not heartbeat.lost:
                self._patiently(outbox.deliver_all)
                study = self._patiently(lambda: queue.claim_study(self.database, self._id, skip=self._resting()))
                if study is None:
                    self._idle(heartbeat)
                else:
                    self._work(study, heartbeat, outbox)
        LOGGER.info("worker ended", extra={"worker": self._id, "lost": heartbeat.lost})

    def _show(self, heartbeat: Heartbeat, outbox: Outbox) -> None:
        figures = self.figures
        figures.labels = {"worker": self._id, "device": self.device.name, "device_uuid": self.device.uuid}
        figures.heard_at = lambda: heartbeat.heard_at
        figures.waiting = lambda: len(outbox.waiting())
        figures.quarantined = lambda: heartbeat.quarantined
        figures.draining = self.stop.is_set

    def _idle(self, heartbeat: Heartbeat) -> None:
        """Waits for work. One connection listens meanwhile, and is given back before the work begins."""
        since = kept_at = time.monotonic()
        with Wakeups(self.database) as wakeups:
            while not self.stop.is_set() and not heartbeat.lost:
                wakeups.wait(IDLE_SECONDS)
                if heartbeat.quarantined and time.monotonic() - since > QUARANTINE_SECONDS:
                    self._patiently(lambda: workers.release(self.database, self._id))
                    LOGGER.warning("the device is tried again", extra={"worker": self._id})
                    since = time.monotonic()
                if self._patiently(lambda: queue.wanted(self.database, self._id, skip=self._resting())):
                    return
                if time.monotonic() - kept_at > HOUSEKEEPING_SECONDS:
                    kept_at = time.monotonic()
                    self._keep_house()

    def _keep_house(self) -> None:
        """One idle worker mends what others had no time for, and forgets workers that went long ago."""
        try:
            if is_eldest(self.database, self._id):
                settle_recent(self.database, self._settled)
                workers.forget(self.database, older_than_seconds=FORGOTTEN_SECONDS)
        except (StorageError, TightfitError) as error:
            LOGGER.warning("housekeeping failed", extra={"cause": str(error), "worker": self._id})

    def _work(self, study: StudyRecord, heartbeat: Heartbeat, outbox: Outbox) -> None:
        ids = {"worker": self._id, "study": study.name, "study_id": study.id}
        try:
            spec = self._spec(study)
        except Refused as refused:
            self._refuse(study, refused)
            return
        self.figures.study, self.figures.studies = study.name, self.figures.studies + 1
        why = None
        try:
            with lanes_for(spec, (self.device,), self.settings.data_dir) as lanes:
                session = Session(
                    database=self.database, study=study, spec=spec, lanes=lanes,
                    stop=Leaving(self.stop, grace_seconds=self.settings.drain_seconds), outbox=outbox,
                    report=lambda progress: self._report(progress, ids), worker_id=self._id, shared=True,
                    keepalive_seconds=self.settings.lease_seconds, look=self._look,
                )  # fmt: skip
                with self._heard(heartbeat, session), Projector(self.database, study.id, self._id):
                    join(session)
                why = session.stop.why
                self._settled.add(study.id)
                self._patiently(session.save_seconds)
        except MachineError as error:
            self._note_infra(str(error), ids)
        except TightfitError as error:
            LOGGER.error("the study failed", extra={**ids, "cause": str(error)})
        except Exception:
            LOGGER.exception("the study failed", extra=ids)
        finally:
            self.figures.study = None
            self._rest(study.id, REST_SECONDS)
            LOGGER.info("left the study", extra={**ids, "why": why})
            self._patiently(lambda: queue.leave_study(self.database, self._id))

    @contextmanager
    def _heard(self, heartbeat: Heartbeat, session: Session) -> Iterator[None]:
        heartbeat.session = session
        try:
            yield
        finally:
            heartbeat.session = None

    def _spec(self, study: StudyRecord) -> StudySpec:
        """The study's spec as this worker may run it, its caches on this machine."""
        stored = specs.from_mapping(study.spec)
        asked = stored.objective
        cache = cache_of(self.settings, asked.kind, asked.settings, asked.folder)
        made = require_allowed(stored, self.allowed, self.settings.data_dir / "empty")
        return replace(made, objective=replace(made.objective, cache=str(cache)))

    def _refuse(self, study: StudyRecord, refused: Refused) -> None:
        ids = {"worker": self._id, "study": study.name, "study_id": study.id}
        LOGGER.warning("refused", extra={**ids, "cause": str(refused)})
        self._rest(study.id, REFUSED_SECONDS)
        if refused.everywhere:
            self._patiently(
                lambda: studies.set_status(self.database, study.id, "failed", str(refused), only_from={"running"})
            )
        self._patiently(lambda: queue.leave_study(self.database, self._id, refusal=str(refused)))

    def _report(self, progress: Progress, ids: dict[str, Any]) -> None:
        logs.say(progress, ids)
        if not isinstance(progress, TrialEnded):
            return
        self.figures.runs[progress.outcome] += 1
        self.figures.run_seconds += progress.seconds
        if progress.outcome == "infra":
            if progress.cause != "worker_lost":  # that is a killed template's, and says nothing of the device
                self._note_infra(progress.message, ids)
        elif self._infra and progress.outcome != "cancelled":
            self._infra = 0
            self._patiently(lambda: workers.note_fine(self.database, self._id))

    def _note_infra(self, reason: str, ids: dict[str, Any]) -> None:
        self._infra += 1
        noted = self._patiently(lambda: workers.note_infra(self.database, self._id, reason))
        if noted.status == "quarantined":
            LOGGER.error("the device is quarantined", extra={**ids, "cause": noted.reason})

    def _look(self, session: Session, idle: bool) -> None:
        """Leaves the study for a more urgent one, between two runs; while there is nothing to run, for any other."""
        if time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        mine = session.study.id
        others = queue.wanted(self.database, self._id, skip={*self._resting(), mine})
        if others and (idle or studies.get(self.database, others[0]).priority > session.study.priority):
            session.stop.leave("elsewhere")

    def _rest(self, study_id: int, seconds: float) -> None:
        self._skip[study_id] = time.monotonic() + seconds

    def _resting(self) -> frozenset[int]:
        now = time.monotonic()
        self._skip = {study_id: until for study_id, until in self._skip.items() if until > now}
        return frozenset(self._skip)

    def _patiently(self, work: Callable[[], Answer]) -> Answer:
        return patiently(
            work,
            give_up=self.stop.is_set,
            on_wait=lambda cause: LOGGER.warning("the store is away", extra={"cause": cause, "worker": self._id}),
            on_back=lambda seconds: LOGGER.info("the store is back", extra={"seconds": seconds, "worker": self._id}),
        )
