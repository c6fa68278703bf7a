"""The only reader between the screens and the store. Bounded queries, kept per version of a study.

What a function returns is shared by all sessions: it is frozen and must not be changed. Nothing is kept longer than the
study's version: the store raises that with every change of the study, a trial or a run. Streamlit leaves arguments that
begin with an underscore out of a key: only the store itself may be one, and its name stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import streamlit as st

from storage import overview, runs, studies, trial_table, trials, workers
from storage.clock import clock
from storage.database import Database
from storage.errors import NotFound
from storage.overview import StudyOverview
from storage.records import RunRecord, StudyRecord, StudyStatus, TrialRecord, WorkerRecord
from storage.trial_table import OrderBy, TrialPage
from tuner import spec as specs
from tuner.answer.summary import StudyView, summarise
from tuner.doctor import Diagnosis, diagnose
from tuner.service import LOST, is_expired, lost_studies
from tuner.settings import Settings
from ui.points import Points, points_of

LIST_SECONDS = 15.0
"""How old the list of studies may be while nothing in it has changed: leases end without a change."""
RUNNING_SECONDS = 0.8
"""How old what runs now may be: many people watching one study ask the store as often as one."""
MOST_STUDIES = 2000
WHOLE = 2000
"""Studies of more trials are answered from the trials that can matter: see :func:`_that_matter`."""
MOST_MATTER = 1000
ALIKE_SECONDS = 15.0
MOST_ALIKE = 50
"""Of so many of the newest studies one is looked for that knows what a new one will need."""
OPEN: frozenset[StudyStatus] = frozenset({"queued", "running"})
"""A study of such a status may change any second."""


def store() -> Database:
    """The store of the settings, ready to be read; one for this process.

    Raises:
        StoreUnavailable: It cannot be reached.
        SchemaMismatch: Its tables are not ours.
        StoreError: The settings name no store.
    """
    return _opened(Settings.from_environment().store_url)


@st.cache_resource(show_spinner=False, max_entries=2, on_release=lambda database: database.close())
def _opened(url: str) -> Database:
    database = Database.open(url, application_name="tuner ui")
    database.prepare()
    return database


def list_studies() -> tuple[StudyOverview, ...]:
    """The newest studies at a glance. Lost ones are ``paused`` and say so."""
    database = store()
    return _listed(database.safe_url, overview.stamp(database), database)


@st.cache_resource(show_spinner=False, ttl=LIST_SECONDS, max_entries=2)
def _listed(place: str, stamp: tuple[int, ...], _database: Database) -> tuple[StudyOverview, ...]:
    found = overview.list_studies(_database, limit=MOST_STUDIES)
    lost = lost_studies(_database, found)  # type: ignore[arg-type]
    return tuple(replace(each, status="paused", stop_reason=LOST) if each.id in lost else each for each in found)


def newest_study() -> str | None:
    """The name of the newest study; None in an empty store."""
    found = studies.list_all(store(), limit=1)
    return found[0].name if found else None


def study(name: str) -> StudyRecord | None:
    """The study as it stands now; None without one. One that lost its worker is ``paused`` and says so."""
    database = store()
    found = studies.find(database, name)
    if found is None or found.id not in lost_studies(database, (found,)):
        return found
    return replace(found, status="paused", stop_reason=LOST)


def points(of: StudyRecord) -> Points:
    """All trials of a study in columns, for charts and counts."""
    database = store()
    return _points(database.safe_url, of.id, of.version, database)


@st.cache_resource(show_spinner=False, max_entries=6)
def _points(place: str, study_id: int, version: int, _database: Database) -> Points:
    return points_of(trial_table.points(_database, study_id, *Points.COLUMNS))


def figures(of: StudyRecord, name: str) -> Mapping[int, float]:
    """One figure of the trials' metrics, such as ``mfu`` or ``energy_joules``, by trial number; those that have it."""
    database = store()
    return _figures(database.safe_url, of.id, of.version, name, database)


@st.cache_resource(show_spinner=False, max_entries=12)
def _figures(place: str, study_id: int, version: int, name: str, _database: Database) -> Mapping[int, float]:
    return dict(trial_table.figure(_database, study_id, name))


def answer(of: StudyRecord) -> Mapping[str, Any]:
    """The document of ``tuner show``: baseline, best, front with intervals, speed-up, explanation, notices."""
    database = store()
    return _answer(database.safe_url, of.id, of.version, database)


@st.cache_resource(show_spinner=False, max_entries=32)
def _answer(place: str, study_id: int, version: int, _database: Database) -> Mapping[str, Any]:
    known = studies.get(_database, study_id)
    counted = trials.counts(_database, study_id)
    rows, done = _whole(_database, study_id) if sum(counted.values()) <= WHOLE else _that_matter(_database, study_id)
    spec = specs.from_mapping(known.spec)
    return {**summarise(known, rows, done, spec), "counts": counted}


def _whole(database: Database, study_id: int) -> tuple[Sequence[TrialRecord], Sequence[RunRecord]]:
    return trials.list_of(database, study_id), runs.list_of(database, study_id=study_id)


def _that_matter(database: Database, study_id: int) -> tuple[Sequence[TrialRecord], Sequence[RunRecord]]:
    """The trials that decide an answer, and their runs: baseline, front, confirmed, repeated, then the fastest.

    A trial's interval needs its own windows, the baseline's and the repeats' spread: all of them are here.
    """
    columns = trial_table.points(database, study_id, "id", "number", "throughput", "windows", "confirmed", "outcome")
    front = {each.id for each in trial_table.front(database, study_id)}
    measured = [row for row in columns if row[5] in ("completed", "pruned")]
    measured.sort(key=lambda row: (row[0] not in front, row[1] != 0, not row[4], row[3] < 2, -(row[2] or 0.0)))
    ids = [row[0] for row in measured[:MOST_MATTER]]
    found = trials.by_ids(database, ids)
    return sorted(found, key=lambda each: each.number), runs.of_trials(database, ids)


def view(of: StudyRecord) -> StudyView:
    """The study's rows as the answer and the export read them; not kept."""
    database = store()
    rows, done = _whole(database, of.id)
    return StudyView(study=of, trials=rows, runs=done, spec=specs.from_mapping(of.spec))


def trial_page(
    of: StudyRecord,
    *,
    outcomes: Sequence[str] | None = None,
    knobs: Mapping[str, Any] | None = None,
    order_by: OrderBy = "number",
    descending: bool = False,
    limit: int = 50,
    offset: int = 0,
) -> TrialPage:
    """One page of the trials table: as :func:`storage.trial_table.page`."""
    return trial_table.page(
        store(), of.id, outcomes=outcomes, knobs=knobs, order_by=order_by, descending=descending, limit=limit,
        offset=offset,
    )  # fmt: skip


def trials_by_number(of: StudyRecord, numbers: Sequence[int]) -> tuple[TrialRecord, ...]:
    """These trials whole, in the order asked for; those that do not exist are left out."""
    table = points(of)
    ids = {number: table.ids[table.at[number]] for number in numbers if number in table.at}
    found = {each.number: each for each in trials.by_ids(store(), list(ids.values()))}
    return tuple(found[number] for number in numbers if number in found)


def trial(of: StudyRecord, number: int) -> TrialRecord | None:
    """One trial, whole; None when there is none of that number."""
    found = trials_by_number(of, (number,))
    return found[0] if found else None


def trial_runs(of: StudyRecord, trial_id: int) -> tuple[RunRecord, ...]:
    """Every run of a trial, by the time it started."""
    return runs.list_of(store(), study_id=of.id, trial_id=trial_id)


@dataclass(frozen=True, kw_only=True)
class Ongoing:
    """A run in progress.

    Attributes:
        trial: What it runs; None for a run of the whole study.
        worker: Who runs it; None for ``tuner run`` without a registered process.
        seconds: How long it has been running.
        silent: Whether its worker has said nothing for longer than its lease.
    """

    run: RunRecord
    trial: TrialRecord | None
    worker: WorkerRecord | None
    seconds: float
    silent: bool


def ongoing(of: StudyRecord) -> tuple[Ongoing, ...]:
    """What runs now, by the time it started; at most :data:`RUNNING_SECONDS` old."""
    database = store()
    return _ongoing(database.safe_url, of.id, database)


@st.cache_resource(show_spinner=False, ttl=RUNNING_SECONDS, max_entries=64)
def _ongoing(place: str, study_id: int, _database: Database) -> tuple[Ongoing, ...]:
    database = _database
    found = runs.unfinished(database, study_id=study_id)
    if not found:
        return ()
    moment = database.read(clock)
    at_it = {each.id: each for each in workers.list_all(database, study_id=study_id)}
    known = {each.id: each for each in trials.by_ids(database, [run.trial_id for run in found if run.trial_id])}
    alone = next(iter(at_it.values()), None) if len(at_it) == 1 else None
    return tuple(_told(run, known, at_it.get(run.worker_id or "", alone), moment) for run in found)


def _told(run: RunRecord, known: Mapping[int, TrialRecord], worker: WorkerRecord | None, moment: datetime) -> Ongoing:
    return Ongoing(
        run=run,
        trial=known.get(run.trial_id) if run.trial_id is not None else None,
        worker=worker,
        seconds=max(0.0, (moment - run.started_at).total_seconds()),
        silent=worker is not None and is_expired(worker, moment),
    )


def living_workers() -> tuple[WorkerRecord, ...]:
    """The workers that have not ended and have spoken within their lease."""
    database = store()
    moment = database.read(clock)
    return tuple(each for each in workers.list_all(database) if not is_expired(each, moment))


@dataclass(frozen=True, kw_only=True)
class SeenWorker:
    """A worker as it stands by the database's clock.

    Attributes:
        study: Name of the study it works on; None without one.
        silent_seconds: Since it last spoke.
        lost: Whether that is longer than its lease.
    """

    worker: WorkerRecord
    study: str | None
    silent_seconds: float
    lost: bool


def seen_workers(*, ended: bool = False) -> tuple[SeenWorker, ...]:
    """The workers, the newest last; those that are gone as well with ``ended``."""
    database = store()
    moment = database.read(clock)
    found = workers.list_all(database, ended=ended)
    names = {each.id: each.name for each in list_studies()} if any(each.study_id for each in found) else {}
    return tuple(
        SeenWorker(
            worker=each,
            study=None if each.study_id is None else names.get(each.study_id),
            silent_seconds=max(0.0, (moment - each.heartbeat_at).total_seconds()),
            lost=each.ended_at is None and is_expired(each, moment),
        )
        for each in found
    )


def worker_runs() -> Mapping[str, RunRecord]:
    """The run in progress of each worker that has one, by the worker's id."""
    return {run.worker_id: run for run in runs.unfinished(store()) if run.worker_id is not None}


def alike(objective: Mapping[str, Any]) -> tuple[StudyRecord, tuple[TrialRecord, ...]] | None:
    """The newest study of the same objective that has been prepared, and its trials; None without one.

    Args:
        objective: Of the spec's identity: kind and settings.
    """
    database = store()
    found = next(
        (each for each in _prepared(database.safe_url, database) if each.identity["objective"] == objective), None
    )
    return None if found is None else (found, trials.list_of(database, found.id))


@st.cache_resource(show_spinner=False, ttl=ALIKE_SECONDS, max_entries=2)
def _prepared(place: str, _database: Database) -> tuple[StudyRecord, ...]:
    found = studies.list_all(_database, limit=MOST_ALIKE)
    return tuple(each for each in found if each.facts.get("facts") and each.identity.get("objective"))


def handover_view(of: StudyRecord) -> StudyView:
    """As :func:`view`, of the trials that can be handed over; kept per version."""
    database = store()
    return _handover_view(database.safe_url, of.id, of.version, of, database)


@st.cache_resource(show_spinner=False, max_entries=4)
def _handover_view(place: str, study_id: int, version: int, _of: StudyRecord, _database: Database) -> StudyView:
    many = sum(trials.counts(_database, study_id).values()) > WHOLE
    rows, done = (_that_matter if many else _whole)(_database, study_id)
    return StudyView(study=_of, trials=rows, runs=done, spec=specs.from_mapping(_of.spec))


def diagnosis(of: StudyRecord) -> Diagnosis:
    """What the seven checks say of a study."""
    return _diagnosis(store().safe_url, of.id, of.version, handover_view(of))


@st.cache_resource(show_spinner=False, max_entries=8)
def _diagnosis(place: str, study_id: int, version: int, _view: StudyView) -> Diagnosis:
    return diagnose(_view)


def required(name: str) -> StudyRecord:
    """:func:`study`, which must exist.

    Raises:
        NotFound: It does not.
    """
    found = study(name)
    if found is None:
        raise NotFound(f"no study named {name!r} in this store")
    return found
