"""One study from first to last: prepare, search, confirm, say how it ended. Interrupted anywhere, it goes on there.

One engine behind two doors: ``tuner run`` works on a study alone, with a thread a device; service workers, one process
a device, work on it together. What they share lives in the store.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from objectives.preload import preload_modules
from storage import queue, studies, trials, workers
from storage.errors import StorageError
from tuner.errors import MachineError, StudyError, TightfitError, served_by_workers
from tuner.progress import Notice, OnProgress, Preparing, StudyEnded, StudyStarted, ignore
from tuner.search.predictions import predicted_peaks, uncertain
from tuner.search.projection import Projection
from tuner.search.samplers import SearchTask, make_proposer
from tuner.work.confirming import confirm
from tuner.work.estimating import predict, predicted_misfits
from tuner.work.heartbeat import Heartbeat
from tuner.work.lane import Device, Lane, choose_devices
from tuner.work.leaving import Leaving
from tuner.work.loader_capacity import loader_capacities
from tuner.work.outbox import Outbox
from tuner.work.preparation import Interrupted, prepare
from tuner.work.registration import register
from tuner.work.run_log import remove_stale_logs
from tuner.work.searching import Search
from tuner.work.session import Session
from tuner.work.transferring import earlier_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from storage.database import Database
    from storage.records import StudyRecord, StudyStatus
    from tuner.search.stopping import Stop as SearchEnd
    from tuner.spec.model import StudySpec
    from tuner.stop import Stop

STOPPED = "stopped by a person; the same command goes on"
CONFIRM_WAIT_SECONDS = 1.0
"""A worker that is not the one to confirm looks so often whether that one is gone."""


def work_on(
    database: Database,
    study: StudyRecord,
    spec: StudySpec,
    *,
    folder: Path,
    stop: Stop,
    report: OnProgress = ignore,
    lease_seconds: float = workers.LEASE_SECONDS,
) -> None:
    """Works on a study on every device of this machine that it may use, until it ends or somebody asks to stop.

    Args:
        database: The store.
        study: As stored.
        spec: Its spec, limits and sampler as asked for now.
        folder: Local folder for device locks, the outbox and logs of runs in progress.
        stop: Asks for the end; what is done stays, the same call goes on from there.
        report: Takes progress.
        lease_seconds: After so long without a word this process counts as lost.

    Raises:
        StudyError: Another process works on this study.
        TightfitError: It cannot be worked on; the study is ``failed`` with that reason.
    """
    with opened(database, study, spec, folder=folder, stop=stop, report=report, lease_seconds=lease_seconds) as session:
        take_up(session)
        _work(session)


@contextmanager
def opened(
    database: Database,
    study: StudyRecord,
    spec: StudySpec,
    *,
    folder: Path,
    stop: Stop,
    report: OnProgress,
    lease_seconds: float = workers.LEASE_SECONDS,
    after_its_end: bool = False,
) -> Iterator[Session]:
    """A session on a study: nobody else works on it meanwhile, nothing of its processes stays. As :func:`work_on`.

    ``after_its_end``: the study's status stays what it is, and is no reason to leave.
    """
    with database.lock(f"study-{study.id}") as held:
        if not held:
            raise StudyError(f"another process is working on study {study.name!r}: wait for it, or stop it first")
        if not queue.withdraw(database, study.id):
            raise served_by_workers(study.name, studies.status_of(database, study.id) or study.status)
        devices = choose_devices(spec.device)
        worker = register(database, devices[0], lease_seconds=lease_seconds, study_id=study.id)
        with lanes_for(spec, devices, folder) as lanes:
            session = Session(
                database=database, study=study, spec=spec, lanes=lanes, stop=Leaving(stop),
                outbox=Outbox(folder, database), report=report, worker_id=worker.id,
                keepalive_seconds=lease_seconds, after_its_end=after_its_end,
            )  # fmt: skip
            with Heartbeat(database, worker.id, lease_seconds=lease_seconds, session=session):
                yield session


@contextmanager
def lanes_for(spec: StudySpec, devices: Sequence[Device], folder: Path) -> Iterator[tuple[Lane, ...]]:
    """A lane a device for a study's objective; their processes are gone afterwards."""
    preload = preload_modules(spec.objective)
    lanes = tuple(Lane(device, preload=preload, path=spec.objective.folder, folder=folder) for device in devices)
    remove_stale_logs(folder / "logs")
    try:
        yield lanes
    finally:
        for lane in lanes:
            lane.close()


def take_up(session: Session) -> None:
    """Marks the study as running, and what a dead process left running as lost: its trials get their next attempt.

    What it had finished and not delivered is delivered first.
    """
    session.outbox.deliver_all()
    for trial in trials.unfinished(session.database, session.study.id):
        trials.release(session.database, trial.id, evidence={"text": "its worker ended without a word"})
    trials.reopen(session.database, session.study.id)
    session.refresh(studies.set_status(session.database, session.study.id, "running"))


def _work(session: Session) -> None:
    """``tuner run``'s way through the phases. What a person set meanwhile with another command stays."""
    status: StudyStatus = "paused"
    reason: str | None = STOPPED
    try:
        status, reason = _phases(session)
    except Interrupted:
        pass
    except Exception as error:
        status, reason = "failed", str(error)
        raise
    finally:
        session.save_seconds()
        ended = end_study(session, status, reason)
        session.report(StudyEnded(study=session.study.name, status=ended.status, stop_reason=ended.stop_reason))
    _project(session)


def end_study(session: Session, status: StudyStatus, reason: str | None) -> StudyRecord:
    """Gives a running study its status; one that a person has paused, cancelled or deleted stays as it is."""
    return studies.set_status(session.database, session.study.id, status, reason, only_from={"running"})


def join(session: Session) -> None:
    """A service worker's part in a study: until the study ends, or there is a reason to leave it.

    Raises:
        TightfitError: It cannot be worked on here; the study is ``failed`` with that reason.
    """
    try:
        with session.deciding():
            trials.reopen(session.database, session.study.id)
        ended = _search(session)
        if ended is not None:
            _end_together(session, ended)
    except (Interrupted, StorageError):
        return
    except MachineError:
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, TightfitError) else f"{type(error).__name__}: {error}"
        session.patiently(lambda: end_study(session, "failed", reason))
        raise


def _end_together(session: Session, ended: SearchEnd) -> None:
    """The search is over: one worker closes and confirms, the others wait until that is done or it is gone."""
    while not session.stop.is_set():
        with session.database.lock(f"confirm-{session.study.id}") as held:
            if held and studies.status_of(session.database, session.study.id) == "running":
                outcome = _closing(session, ended)
                if outcome is not None:
                    session.save_seconds()
                    end_study(session, *outcome)
                    session.report(StudyEnded(study=session.study.name, status=outcome[0], stop_reason=outcome[1]))
                    _project(session)
                return
        session.wait_for_others(CONFIRM_WAIT_SECONDS)


def _phases(session: Session) -> tuple[StudyStatus, str | None]:
    """Returns the study's status and why it ended."""
    ended = _search(session)
    return (None if ended is None else _closing(session, ended)) or ("paused", STOPPED)


def _search(session: Session) -> SearchEnd | None:
    """Prepares and searches; None when there was a reason to leave."""
    session.report(Preparing(text="looking at the data and the machine"))
    prepared = predict(session, prepare(session))
    spec = session.spec
    baseline, space = prepared.baseline_and_space(spec)
    session.report(_started(session, baseline.config.to_mapping()))
    task = SearchTask(
        space=space,
        seed=spec.seed,
        limit_bytes=session.study.memory_limit_bytes,
        predicted_misfits=predicted_misfits(session, prepared),
        predicted_peak_bytes=predicted_peaks(prepared.predictions),
        wide_predictions=uncertain(prepared.predictions),
        loader_capacities=loader_capacities(session, baseline, space),
        device_kind=session.lane.device.kind,
        earlier=earlier_of(session),
    )
    return Search(session, space, baseline, make_proposer(spec.sampler, task)).run()


def _closing(session: Session, ended: SearchEnd) -> tuple[StudyStatus, str | None] | None:
    """The study's end after its search: status and reason; None when there was a reason to leave before."""
    session.patiently(lambda: _close_trials(session))
    if ended.failed:
        return "failed", ended.reason
    session.report(Notice(text=f"search ended: {ended.reason}"))
    return ("finished", ended.reason) if confirm(session) else None


def _started(session: Session, baseline: Mapping[str, object]) -> StudyStarted:
    return StudyStarted(
        study=session.study.name,
        objective=session.spec.objective.kind,
        device=session.lane.device.name,
        sampler=session.spec.sampler,
        trials=session.spec.limits.trials,
        trials_done=len(session.trials()),
        memory_limit_bytes=session.study.memory_limit_bytes,
        baseline=baseline,
        seconds_left=session.seconds_left(),
    )


def _close_trials(session: Session) -> None:
    """A trial still open when the search ends (its time was over) is cancelled: every trial ends once.

    It has said nothing; when the study goes on, :func:`storage.trials.reopen` gives it its next attempt.
    """
    for trial in trials.unfinished(session.database, session.study.id):
        trials.finish(
            session.database, trial.id, outcome="cancelled", evidence={"text": "the search ended before it was done"}
        )


def _project(session: Session) -> None:
    """Writes what Optuna's own tools read. Our tables are the truth: a failure here is told and mended later."""
    try:
        Projection(session.database).heal(session.study.id)
    except Exception as error:  # noqa: BLE001 - the study is done and stored; the next one adds what is missing
        session.report(Notice(text=f"Optuna's copy of the study is not up to date yet: {error}"))
