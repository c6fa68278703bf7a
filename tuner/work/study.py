"""One study from first to last: prepare, search, confirm, say how it ended. Interrupted anywhere, it goes on there."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from objectives.preload import preload_modules
from storage import studies, trials
from tuner.errors import StudyError
from tuner.progress import Notice, OnProgress, Preparing, StudyEnded, StudyStarted, ignore
from tuner.search.projection import Projection
from tuner.search.samplers import SearchTask, make_proposer
from tuner.work.confirming import confirm
from tuner.work.estimating import predicted_misfits
from tuner.work.lane import Lane, choose_devices
from tuner.work.preparation import Interrupted, prepare
from tuner.work.searching import Search
from tuner.work.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from storage.database import Database
    from storage.records import StudyRecord, StudyStatus
    from tuner.spec.model import StudySpec
    from tuner.stop import Stop

STOPPED = "stopped by a person; the same command goes on"


def work_on(
    database: Database,
    study: StudyRecord,
    spec: StudySpec,
    *,
    folder: Path,
    stop: Stop,
    report: OnProgress = ignore,
) -> None:
    """Works on a study on every device of this machine that it may use, until it ends or somebody asks to stop.

    Args:
        database: The store.
        study: As stored.
        spec: Its spec, limits and sampler as asked for now.
        folder: Local folder for device locks and logs of runs in progress.
        stop: Asks for the end; what is done stays, the same call goes on from there.
        report: Takes progress.

    Raises:
        StudyError: Another process works on this study.
        TightfitError: It cannot be worked on; the study is ``failed`` with that reason.
    """
    with opened(database, study, spec, folder=folder, stop=stop, report=report) as session:
        _take_up(session)
        _work(session)


@contextmanager
def opened(
    database: Database, study: StudyRecord, spec: StudySpec, *, folder: Path, stop: Stop, report: OnProgress
) -> Iterator[Session]:
    """A session on a study: nobody else works on it meanwhile, nothing of its processes stays. As :func:`work_on`."""
    with database.lock(f"study-{study.id}") as held:
        if not held:
            raise StudyError(f"another process is working on study {study.name!r}: wait for it, or stop it first")
        with _lanes(spec, folder) as lanes:
            yield Session(database=database, study=study, spec=spec, lanes=lanes, stop=stop, report=report)


@contextmanager
def _lanes(spec: StudySpec, folder: Path) -> Iterator[tuple[Lane, ...]]:
    preload = preload_modules(spec.objective)
    lanes = tuple(
        Lane(device, preload=preload, path=spec.objective.folder, folder=folder)
        for device in choose_devices(spec.device)
    )
    try:
        yield lanes
    finally:
        for lane in lanes:
            lane.close()


def _take_up(session: Session) -> None:
    """Marks the study as running, and what a dead process left running as lost: its trials get their next attempt."""
    for trial in trials.unfinished(session.database, session.study.id):
        trials.release(session.database, trial.id, evidence={"text": "its worker ended without a word"})
    session.refresh(studies.set_status(session.database, session.study.id, "running"))


def _work(session: Session) -> None:
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
        studies.set_status(session.database, session.study.id, status, reason)
        session.report(StudyEnded(study=session.study.name, status=status, stop_reason=reason))
    _project(session)


def _phases(session: Session) -> tuple[StudyStatus, str | None]:
    """Returns the study's status and why it ended."""
    session.report(Preparing(text="looking at the data and the machine"))
    prepared = prepare(session)
    spec = session.spec
    baseline, space = prepared.baseline_and_space(spec)
    session.report(_started(session, baseline.config.to_mapping()))
    task = SearchTask(
        space=space,
        seed=spec.seed,
        limit_bytes=session.study.memory_limit_bytes,
        predicted_misfits=predicted_misfits(session, prepared),
    )
    ended = Search(session, space, baseline, make_proposer(spec.sampler, task)).run()
    if ended is None:
        return "paused", STOPPED
    _close_trials(session)
    if ended.failed:
        return "failed", ended.reason
    session.report(Notice(text=f"search ended: {ended.reason}"))
    finished = confirm(session)
    return ("finished", ended.reason) if finished else ("paused", STOPPED)


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
    """A trial still open when the search ends (its time was over) is cancelled: every trial ends once."""
    for trial in trials.unfinished(session.database, session.study.id):
        trials.finish(
            session.database, trial.id, outcome="cancelled", evidence={"text": "the search ended before it was done"}
        )


def _project(session: Session) -> None:
    """Writes what Optuna's own tools read. Our tables are the truth: a failure here is told and mended later."""
    try:
        Projection(session.database).settle(session.study.id)
    except Exception as error:  # noqa: BLE001 - the study is done and stored; the next one adds what is missing
        session.report(Notice(text=f"Optuna's copy of the study is not up to date yet: {error}"))
