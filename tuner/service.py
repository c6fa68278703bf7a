"""Studies handed to the workers, what people do with them, and the workers themselves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage import queue, runs, studies, trials, workers
from storage.clock import clock
from storage.database import Database
from storage.errors import NotFound, StorageError
from storage.records import RunRecord, StudyRecord, TrialRecord, WorkerRecord
from tuner import spec as specs
from tuner.errors import StoreError, StudyError
from tuner.opening import opened_database, opened_store
from tuner.settings import Settings
from tuner.spec.model import StudySpec
from tuner.spec.quantities import QuantityError, parse_memory
from tuner.stop import Stop

if TYPE_CHECKING:
    from tuner.work.lane import Device

LOGGER = logging.getLogger("tuner.worker")
WATCH_SECONDS = 0.5
LOST = "lost its worker: the same command goes on"
"""Said of a running study that nobody works on and that no worker will take up."""


def submit(
    spec: StudySpec | str | Path | Mapping[str, Any],
    *,
    priority: int = 0,
    device_kind: str | None = None,
    device_memory: str | None = None,
) -> dict[str, Any]:
    """Hands a study to the workers, or goes on with a stored one: ``{"study", "status", "priority", "needs"}``.

    Args:
        spec: A validated spec, a file, YAML text or a mapping.
        priority: Higher is served first.
        device_kind: ``cpu`` or ``cuda``; None for what the spec's ``device`` says.
        device_memory: Least memory of the device, such as ``40GiB``.

    Raises:
        SpecError: The spec cannot be used.
        StudyError: The name means another study, or it is finished and the limits are the same.
        StoreError: The store cannot be reached.
    """
    asked = spec if isinstance(spec, StudySpec) else specs.read(spec)
    kind = device_kind or (asked.device if asked.device != "auto" else None)
    needs = {"device_kind": kind, "memory_bytes": _least_memory(device_memory)}
    needs = {name: value for name, value in needs.items() if value is not None}
    stored, identity = specs.to_mapping(asked), specs.identity(asked)
    with opened_store() as database:
        known = studies.find(database, asked.study)
        if known is None:
            made = queue.submit(
                database, name=asked.study, spec=stored, identity=identity, priority=priority, needs=needs
            )
        else:
            made = _again(database, known, stored, identity, priority)
        return _document(made)


def _least_memory(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        size = parse_memory(text).size_bytes
    except QuantityError as error:
        raise StudyError(f"--device-memory: {error}") from error
    if size is None:
        raise StudyError(f"--device-memory: {text!r} is a share; write a size such as 40GiB")
    return size


def _again(
    database: Database, known: StudyRecord, stored: Mapping[str, Any], identity: Mapping[str, Any], priority: int
) -> StudyRecord:
    lines = specs.difference(known.identity, identity)
    if lines:
        told = "\n".join(f"  {line}" for line in lines)
        raise StudyError(f"study {known.name!r} is in the store already and is another study:\n{told}")
    if known.status == "running" and known.submitted_at is None:
        raise StudyError(f"`tuner run` is working on study {known.name!r}: wait for it, or stop it first")
    changed = stored if stored != known.spec else None
    return queue.resume(database, known.name, spec=changed, priority=priority)


def _document(study: StudyRecord) -> dict[str, Any]:
    return {
        "study": study.name,
        "status": study.status,
        "stop_reason": study.stop_reason,
        "priority": study.priority,
        "needs": dict(study.needs),
    }


def pause(name: str) -> dict[str, Any]:
    """Lets whoever works on a study leave it; what is done stays. Raises as :func:`submit`."""
    return _steered(queue.pause, name)


def resume(name: str) -> dict[str, Any]:
    """Puts a study back into the workers' queue. Raises as :func:`submit`."""
    return _steered(queue.resume, name)


def cancel(name: str) -> dict[str, Any]:
    """Ends a study; its measurements stay. Raises as :func:`submit`."""
    with opened_store() as database:
        study = queue.cancel(database, name)
        close_cancelled(database, study)
        return _document(study)


def close_cancelled(database: Database, study: StudyRecord) -> None:
    """Trials of a cancelled study that have no run in progress end with it; a worker ends the others."""
    busy = {run.trial_id for run in runs.unfinished(database, study_id=study.id)}
    for trial in trials.unfinished(database, study.id):
        if trial.id not in busy:
            trials.finish(database, trial.id, outcome="cancelled", evidence={"text": "the study was cancelled"})


def _steered(action: Callable[[Database, str], StudyRecord], name: str) -> dict[str, Any]:
    with opened_store() as database:
        return _document(action(database, name))


def delete(name: str, *, force: bool = False) -> dict[str, Any]:
    """Removes a study with all it measured, and what Optuna's own tools see of it: ``{"study", "trials"}``.

    Args:
        name: The study.
        force: Also one that is running; its workers end their runs.

    Raises:
        StudyError: There is none, or it is running.
        StoreError: The store cannot be reached.
    """
    from tuner.search.projection import Projection

    with opened_store() as database:
        known = studies.find(database, name)
        count = sum(trials.counts(database, known.id).values()) if known is not None else 0
        queue.delete(database, name, force=force)
        Projection(database).delete(name)
        return {"study": name, "trials": count}


def rebuild_optuna(name: str | None = None) -> dict[str, Any]:
    """Makes Optuna's copy of one study, or of all, anew: ``{"studies": {name: trials}}``. Raises as :func:`delete`."""
    from tuner.search.projection import Projection

    with opened_store() as database:
        projection = Projection(database)
        found = [_known(database, name)] if name is not None else list(_all(database))
        return {"studies": {study.name: projection.rebuild(study.id) for study in found}}


def _all(database: Database) -> Iterator[StudyRecord]:
    offset = 0
    while page := studies.list_all(database, limit=500, offset=offset):
        yield from page
        offset += len(page)


def _known(database: Database, name: str) -> StudyRecord:
    found = studies.find(database, name)
    if found is None:
        raise StudyError(f"no study {name!r} in this store; `tuner list` names them")
    return found


def list_workers(*, ended: bool = False) -> dict[str, Any]:
    """The workers of the store: ``{"workers": [...]}``; those that are gone as well with ``ended``."""
    with opened_store() as database:
        names = {study.id: study.name for study in _all(database)}
        moment = database.read(clock)
        found = workers.list_all(database, ended=ended)
        return {"workers": [_worker_document(each, names, moment) for each in found]}


def _worker_document(worker: WorkerRecord, names: Mapping[int, str], moment: Any) -> dict[str, Any]:
    return {
        "worker": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "device": worker.device_name,
        "device_uuid": worker.device_uuid,
        "threads": worker.threads,
        "status": "lost" if worker.ended_at is None and is_expired(worker, moment) else worker.status,
        "study": names.get(worker.study_id) if worker.study_id is not None else None,
        "silent_seconds": max(0.0, (moment - worker.heartbeat_at).total_seconds()),
        "reason": worker.reason,
    }


def is_expired(worker: WorkerRecord, moment: Any) -> bool:
    """Whether a worker has said nothing for its lease, by the database's clock."""
    return bool((moment - worker.heartbeat_at).total_seconds() > worker.lease_seconds)


def release_worker(worker: str) -> dict[str, Any]:
    """Puts a quarantined worker's device back into service; its id may be shortened. Raises as :func:`delete`."""
    with opened_store() as database:
        found = [each for each in workers.list_all(database, ended=True) if each.id.startswith(worker)]
        if len(found) != 1:
            raise StudyError(f"{len(found) or 'no'} workers' ids begin with {worker!r}; `tuner workers` names them")
        released = workers.release(database, found[0].id)
        return {"worker": released.id, "status": released.status}


def lost_studies(database: Database, found: tuple[StudyRecord, ...]) -> frozenset[int]:
    """Ids of running studies that nobody works on any more and that the queue will not give to a worker."""
    running = [study for study in found if study.status == "running" and study.submitted_at is None]
    if not running:
        return frozenset()
    moment = database.read(clock)
    at_it = {each.study_id for each in workers.list_all(database) if not is_expired(each, moment)}
    return frozenset(study.id for study in running if study.id not in at_it)


@dataclass(frozen=True, kw_only=True)
class Change:
    """What ``watch`` tells of: the study's status, a trial or run that is new or has ended, or how far open runs are.

    Attributes:
        running: The study's open runs as they stand; None in what tells of something else.
    """

    study: StudyRecord | None = None
    trial: TrialRecord | None = None
    run: RunRecord | None = None
    running: tuple[RunRecord, ...] | None = None


def watch(name: str, stop: Stop, *, running: bool = False) -> Iterator[Change]:
    """What happens to a study as the store sees it, from the beginning, until it ends or ``stop`` asks.

    Args:
        name: The study.
        stop: Asks to end.
        running: Whether to tell at every look, too, how far the runs in progress have come.

    Raises:
        StudyError: There is none of that name.
        StoreError: The store cannot be reached; one that is away for a while is waited for.
    """
    with opened_store() as database:
        study = _known(database, name)
        yield Change(study=study)
        seen, version, status = [0, 0], -1, study.status
        while not stop.is_set():
            try:
                study = studies.get(database, study.id)
                if study.version != version:
                    yield from _changes(database, study.id, seen)
                    version = study.version
                if running:
                    yield Change(running=runs.unfinished(database, study_id=study.id))
            except NotFound as error:
                raise StudyError(f"study {name!r} was deleted") from error
            except StorageError:
                stop.wait(2 * WATCH_SECONDS)
                continue
            if study.status != status:
                status = study.status
                yield Change(study=study)
            if status in studies.ENDED:
                return
            stop.wait(WATCH_SECONDS)


def _changes(database: Database, study_id: int, seen: list[int]) -> Iterator[Change]:
    for run in runs.changed_since(database, study_id, seen[0]):
        seen[0] = max(seen[0], run.changed)
        yield Change(run=run, trial=trials.get(database, run.trial_id) if run.trial_id is not None else None)
    for trial in trials.changed_since(database, study_id, seen[1]):
        seen[1] = max(seen[1], trial.changed)
        yield Change(trial=trial)


def work(
    device: str,
    stop: Stop,
    *,
    slots: int = 1,
    allowed: Path | None = None,
    metrics_port: int | None = None,
    metrics_host: str = "127.0.0.1",
) -> None:
    """Serves the queue on one device of this machine until ``stop`` asks.

    Args:
        device: As for :func:`tuner.work.seat.worker_device`.
        stop: The first request drains, the second ends at once.
        slots: Into how many the CPU is divided (for testing the service's throughput; 1 for measuring).
        allowed: The operator's list; None for that of the settings.
        metrics_port: Where ``/healthz`` and ``/metrics`` answer; None for nowhere, 0 for any free port.
        metrics_host: The address they listen on.

    Raises:
        StoreError: The store's schema is not this version's.
        TightfitError: There is no such device, or another worker of this machine owns it.
    """
    from tuner.work.allowed import Allowed
    from tuner.work.patience import patiently
    from tuner.work.registration import host_name
    from tuner.work.seat import take_seat, worker_device

    settings = Settings.from_environment()
    listed = Allowed.read(allowed or settings.allowed_file)
    mine, seat = take_seat(settings.data_dir, worker_device(device, slots), slots)
    name = workers.application_name(host_name(), mine.uuid or mine.lock_name)
    with seat, opened_database(settings, application_name=name) as database:
        patiently(database.prepare, give_up=stop.is_set)
        _serve(database, mine, settings, listed, stop, metrics_port, metrics_host)


def _serve(
    database: Database, device: Device, settings: Settings, listed: Any, stop: Stop, port: int | None, host: str
) -> None:
    from tuner.work.health import Figures, HealthServer
    from tuner.work.worker import Worker

    figures = Figures(lease_seconds=settings.lease_seconds)
    worker = Worker(
        database=database, device=device, settings=settings, allowed=listed, stop=stop, figures=figures
    )  # fmt: skip
    if port is None:
        worker.serve()
        return
    try:
        server = HealthServer(figures, port, host)
    except OSError as error:
        raise StoreError(f"port {port} for /metrics cannot be had: {error}") from error
    with server:
        LOGGER.info("health and metrics", extra={"address": f"http://{host}:{server.port}"})
        worker.serve()
