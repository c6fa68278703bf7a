"""One hall behind three doors: the Python call, the command line and the screens all come through here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage import queue, runs, studies, trials, workers
from storage.database import Database
from storage.records import RunRecord, StudyRecord, TrialRecord
from tuner import spec as specs
from tuner.answer.summary import StudyView, front_json, list_json, summarise
from tuner.errors import StudyError, served_by_workers
from tuner.opening import opened_database, opened_store
from tuner.progress import OnProgress, ignore
from tuner.service import LOST, lost_studies
from tuner.settings import Settings
from tuner.spec.model import StudySpec
from tuner.stop import Stop

if TYPE_CHECKING:
    from tuner.work.longer_runs import Bench

Trials = tuple[TrialRecord, ...]
Runs = tuple[RunRecord, ...]


@dataclass(frozen=True, kw_only=True)
class Result:
    """A study as it stands: what ``run`` and ``show`` answer."""

    document: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The JSON document of ``run`` and ``show`` (docs/reference.md lists its fields)."""
        return dict(self.document)

    @property
    def exit_status(self) -> int:
        """0 with a confirmed best, 1 without one."""
        return 0 if self.document["best"] is not None else 1


def run(
    spec: StudySpec | str | Path | Mapping[str, Any],
    *,
    on_progress: OnProgress | None = None,
    stop: Stop | None = None,
) -> Result:
    """Runs a study on this machine, or goes on with it: trials, front, confirmed winner.

    Args:
        spec: A validated spec, a file, YAML text or a mapping.
        on_progress: Takes progress (:mod:`tuner.progress`).
        stop: Asks for the end from elsewhere (a signal handler); what is done is kept.

    Raises:
        SpecError: The spec cannot be used.
        StudyError: The name means another study in this store, or another process works on it.
        StoreError: The store cannot be reached.
        TightfitError: The study cannot be worked on here; the message says why.
    """
    from tuner.work.study import work_on

    asked = spec if isinstance(spec, StudySpec) else specs.read(spec)
    settings = Settings.from_environment()
    with opened_store(settings) as database:
        study = _study_for(database, asked)
        work_on(
            database,
            study,
            asked,
            folder=settings.data_dir,
            stop=stop or Stop(),
            report=on_progress or ignore,
            lease_seconds=settings.lease_seconds,
        )
        return _result(database, studies.get(database, study.id))


def estimate(
    spec: StudySpec | str | Path | Mapping[str, Any], *, on_progress: OnProgress | None = None, stop: Stop | None = None
) -> dict[str, Any]:
    """Predicts the peak memory of a spec's whole space without a trial. The study is kept, and ``run`` goes on from it.

    Raises:
        SpecError, StudyError, StoreError, TightfitError: As :func:`run`.
    """
    from tuner.work.estimating import estimate as predict
    from tuner.work.estimating import estimate_json
    from tuner.work.study import opened

    asked = spec if isinstance(spec, StudySpec) else specs.read(spec)
    settings = Settings.from_environment()
    with opened_store(settings) as database:
        study = _study_for(database, asked)
        with opened(
            database, study, asked, folder=settings.data_dir, stop=stop or Stop(), report=on_progress or ignore
        ) as session:
            return estimate_json(session, *predict(session))


def show(name: str) -> Result:
    """A study of the store as it stands.

    Raises:
        StudyError: There is none of that name; the message lists some there are.
        StoreError: The store cannot be reached.
    """
    with opened_store() as database:
        return _result(database, _known(database, name))


def view(name: str) -> StudyView:
    """A study's rows with what follows from them. Raises as :func:`show`."""
    with opened_store() as database:
        return _view(database, _known(database, name))


def front(name: str) -> dict[str, Any]:
    """The Pareto front of a study: ``{"study", "trials"}``. Raises as :func:`show`."""
    with opened_store() as database:
        return front_json(*_rows(database, _known(database, name)))


def export(
    name: str,
    to: str,
    *,
    pick: str = "fastest",
    memory: str | None = None,
    world_size: int | None = None,
    output: str | Path | None = None,
    diff: str | Path | None = None,
) -> dict[str, Any]:
    """A measured configuration of a study as files for a training job (docs/reference.md lists the fields).

    Args:
        name: The study.
        to: A format of :data:`tuner.export.NAMES`.
        pick: ``fastest``, ``knee`` or ``smallest`` of the front.
        memory: Only trials that need at most so much, such as ``40GiB``; None for the study's limit.
        world_size: Data-parallel ranks of the job: accumulation is derived again. None for those measured on.
        output: Folder to write to; None writes nothing. Files with other content are never overwritten.
        diff: A configuration of one's own to put beside the exported one.

    Raises:
        ExportRefused: The target cannot hold the configuration exactly, or an argument is unusable; nothing is written.
        StudyError: There is no such study.
        StoreError: The store cannot be reached.
    """
    from tuner.export.study import Wish, export_study

    wish = Wish(
        to=to, pick=pick, memory=memory, world_size=world_size,
        output=None if output is None else Path(output), diff=None if diff is None else Path(diff),
    )  # fmt: skip
    with opened_store() as database:
        return export_study(_view(database, _known(database, name)), wish)


@contextmanager
def longer(name: str, on_progress: OnProgress | None, stop: Stop | None) -> Iterator[Bench]:
    """A study of the store, opened for one of its longer runs on this machine."""
    from tuner.work.longer_runs import bench

    settings = Settings.from_environment()
    with opened_store(settings) as database:
        view = _view(database, _known(database, name))
        with bench(
            database,
            view,
            folder=settings.data_dir,
            stop=stop or Stop(),
            report=on_progress or ignore,
            lease_seconds=settings.lease_seconds,
        ) as opened:
            yield opened


def doctor(name: str) -> dict[str, Any]:
    """What the checks for the seven mistakes say of a study's measurements (:mod:`tuner.doctor`). Runs nothing.

    Raises:
        StudyError, StoreError: As :func:`show`.
    """
    from tuner.doctor import diagnose

    with opened_store() as database:
        return diagnose(_view(database, _known(database, name))).to_json()


def report(name: str, *, output: str | Path | None = None) -> dict[str, Any]:
    """Writes a study as one HTML file that needs no network and no script: ``{"study", "written", "bytes"}``.

    Args:
        name: The study.
        output: Where; ``NAME.html`` in this folder without it. A file that is no such report is never written over.

    Raises:
        StudyError, StoreError: As :func:`show`.
        TightfitError: It cannot be written there.
    """
    from tuner.report import page, write
    from tuner.report.writing import default_path

    with opened_store() as database:
        text = page(_view(database, _known(database, name)))
    path = write(text, default_path(name) if output is None else Path(output))
    return {"study": name, "written": str(path), "bytes": len(text.encode())}


def list_studies() -> dict[str, Any]:
    """All studies of the store, newest first: ``{"studies": [...]}``.

    Raises:
        StoreError: The store cannot be reached.
    """
    with opened_store() as database:
        found = studies.list_all(database, limit=1000)
        lost, at_it = lost_studies(database, found), Counter(each.study_id for each in workers.list_all(database))
        summaries = (
            {**_with_state(summarise(*_rows(database, study), explained=False), study, lost),
             "priority": study.priority, "workers": at_it[study.id]}
            for study in found
        )  # fmt: skip
        return list_json(summaries)


def devices() -> dict[str, Any]:
    """What this machine has to train on: ``{"devices": [...]}``. Touches no device."""
    from objectives.measure.hardware import list_devices

    return {"devices": list_devices()}


def migrate() -> dict[str, Any]:
    """Brings the store's schema to this version: ``{"store", "before", "schema"}``."""
    with opened_database() as database:
        before = database.migrate()
        return {"store": database.safe_url, "before": before, "schema": database.check()}


def check() -> dict[str, Any]:
    """Whether the store can be reached and has this version's schema: ``{"store", "schema"}``.

    Raises:
        StoreError: It cannot, or has not; the message says the command that mends it.
    """
    with opened_database() as database:
        database.require_schema()
        return {"store": database.safe_url, "schema": database.check()}


def _study_for(database: Database, spec: StudySpec) -> StudyRecord:
    """The stored study of this spec, made if need be; limits and sampler are taken over from the spec.

    Raises:
        StudyError: The name means another study; the difference is in the message.
    """
    stored, identity = specs.to_mapping(spec), specs.identity(spec)
    known = studies.find(database, spec.study)
    if known is not None and known.submitted_at is not None and known.status in queue.OPEN:
        raise served_by_workers(known.name, known.status)
    if known is None:
        return studies.create(database, name=spec.study, spec=stored, identity=identity)
    lines = specs.difference(known.identity, identity)
    if lines and known.status != "running" and not trials.list_of(database, known.id):
        studies.delete(database, known.id)  # nothing was measured: a mistake found in preparation may be mended
        return studies.create(database, name=spec.study, spec=stored, identity=identity)
    if lines:
        told = "\n".join(f"  {line}" for line in lines)
        raise StudyError(
            f"study {spec.study!r} is in the store already and is another study:\n{told}\n"
            f"Give this one another name (`study: {spec.study}-2`), or put the old values back to go on with it."
        )
    return studies.update_spec(database, known.id, stored)


def _known(database: Database, name: str) -> StudyRecord:
    found = studies.find(database, name)
    if found is not None:
        return found
    names = ", ".join(repr(study.name) for study in studies.list_all(database, limit=5)) or "none yet"
    raise StudyError(f"no study {name!r} in this store; the newest are: {names}")


def _result(database: Database, study: StudyRecord) -> Result:
    return Result(document=_with_state(summarise(*_rows(database, study)), study, lost_studies(database, (study,))))


def _with_state(document: Mapping[str, Any], study: StudyRecord, lost: frozenset[int]) -> dict[str, Any]:
    """The document of a study whose process died without a word says so, and is not running."""
    state = {"status": "paused", "stop_reason": LOST} if study.id in lost else {}
    return {**document, **state}


def _view(database: Database, study: StudyRecord) -> StudyView:
    study, found, done, spec = _rows(database, study)
    return StudyView(study=study, trials=found, runs=done, spec=spec)


def _rows(database: Database, study: StudyRecord) -> tuple[StudyRecord, Trials, Runs, StudySpec]:
    """Everything the store has of a study, and its spec."""
    return (
        study,
        trials.list_of(database, study.id),
        runs.list_of(database, study_id=study.id),
        specs.from_mapping(study.spec),
    )
