"""Our trials as an Optuna study in the same database, for Optuna's own tools (``load_study``, optuna-dashboard).

A projection only: written after our rows are committed, never read by the search, healed by any process, rebuilt by one
call. On PostgreSQL it lives in the schema ``optuna``, because Optuna's table of versions has the same name as those of
other tools; open it there with ``postgresql+psycopg2://.../db?options=-csearch_path%3Doptuna``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from storage import studies, trials
from storage.database import Database
from storage.errors import StorageError, root_cause
from storage.records import StudyRecord, TrialRecord
from storage.url import secret_of
from tuner.errors import StoreError
from tuner.search.told import CONSTRAINT, Told, told

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages import RDBStorage
    from optuna.study import Study
    from optuna.trial import FrozenTrial

SCHEMA = "optuna"
METRICS = ("throughput", "peak_memory_bytes")
TRIAL_ID = "tuner_trial"
"""User attribute of an Optuna trial: the id of our row it shows."""
METRIC_NAMES = "study:metric_names"
"""Optuna's own key for what ``Study.set_metric_names`` stores (that call is experimental and warns)."""
LOCK_SECONDS = 60.0


class Projection:
    """Writes the projection of one store. Synchronous; one call at a time and process, other processes are waited for.

    Importing Optuna takes half a second and adding a trial about 35 ms (51 statements), so call it beside the work.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._storage: RDBStorage | None = None
        self._shown: dict[str, tuple[int, Study]] = {}

    def url(self) -> str:
        """What to give Optuna as ``storage``. Holds the password: never show it."""
        url = self._database.url
        if not self._database.embedded:
            given = str(url.query.get("options", ""))
            url = url.update_query_dict({"options": f"{given} -csearch_path={SCHEMA}".strip()})
        return url.render_as_string(hide_password=False)

    def heal(self, study_id: int) -> int:
        """Adds what is missing; returns how many trials were.

        Raises:
            StoreError: Optuna's tables cannot be used; nothing of ours is affected.
        """
        with self._opened(study_id) as (storage, study):
            return self._heal(storage, study)

    def settle(self, study_id: int) -> int:
        """:meth:`heal`, and :meth:`rebuild` where a trial has changed since it was added (further windows).

        Optuna's finished trials cannot be changed. Call it when a study ends.

        Raises:
            StoreError: As in :meth:`heal`.
        """
        with self._opened(study_id) as (storage, study):
            self._shown.clear()
            added = self._heal(storage, study)
            return self._rebuild(storage, study) if self._is_stale(storage, study) else added

    def rebuild(self, study_id: int) -> int:
        """Makes the projection of a study anew; returns how many trials it has.

        Raises:
            StoreError: As in :meth:`heal`.
        """
        with self._opened(study_id) as (storage, study):
            return self._rebuild(storage, study)

    def delete(self, name: str) -> None:
        """Removes the projection of a study that was deleted.

        Raises:
            StoreError: As in :meth:`heal`.
        """
        with self._words(), self._writing(name) as storage:
            self._forget(storage, name)

    def _heal(self, storage: RDBStorage, study: StudyRecord) -> int:
        shown = self._study(storage, study.name)
        known = {trial.user_attrs.get(TRIAL_ID) for trial in shown.get_trials(deepcopy=False)}
        missing = [id for id in trials.finished_ids(self._database, study.id) if id not in known]
        return self._add(shown, study, trials.by_ids(self._database, missing))

    def _rebuild(self, storage: RDBStorage, study: StudyRecord) -> int:
        self._forget(storage, study.name)
        finished = [trial for trial in trials.list_of(self._database, study.id) if trial.outcome is not None]
        return self._add(self._study(storage, study.name), study, finished)

    def _add(self, shown: Study, study: StudyRecord, missing: Sequence[TrialRecord]) -> int:
        space = choices(study, trials.baseline(self._database, study.id)) if missing else {}
        for trial in missing:
            shown.add_trial(frozen_trial(trial, space, study.memory_limit_bytes))
        return len(missing)

    def _is_stale(self, storage: RDBStorage, study: StudyRecord) -> bool:
        ours = {trial.id: trial for trial in trials.list_of(self._database, study.id) if trial.outcome is not None}
        for shown in self._study(storage, study.name).get_trials(deepcopy=False):
            trial = ours.get(shown.user_attrs.get(TRIAL_ID, -1))
            if trial is None or _shown(shown) != _told(trial, study.memory_limit_bytes):
                return True
        return False

    def _study(self, storage: RDBStorage, name: str) -> Study:
        """Optuna's study, its finished trials cached; read anew when another process has rebuilt it."""
        known, there = self._shown.get(name), _id_of(storage, name)
        if known is None or there is None or known[0] != there:
            shown = _create(storage, name)
            known = self._shown[name] = (storage.get_study_id_from_name(name), shown)
        return known[1]

    def _forget(self, storage: RDBStorage, name: str) -> None:
        self._shown.pop(name, None)
        there = _id_of(storage, name)
        if there is not None:
            storage.delete_study(there)

    @contextmanager
    def _opened(self, study_id: int) -> Iterator[tuple[RDBStorage, StudyRecord]]:
        with self._words():
            name = studies.get(self._database, study_id).name
            with self._writing(name) as storage:
                yield storage, studies.get(self._database, study_id)

    @contextmanager
    def _words(self) -> Iterator[None]:
        """Puts Optuna's errors and ours into words for people."""
        from optuna.exceptions import OptunaError

        secret = secret_of(self._database.url)
        try:
            yield
        except StorageError as error:
            raise StoreError(str(error)) from error
        except (OptunaError, SQLAlchemyError, RuntimeError) as error:
            cause = _innermost(error).replace(secret, "***") if secret else _innermost(error)
            raise StoreError(f"Optuna's tables in {self._database.safe_url} cannot be used: {cause}") from error

    @contextmanager
    def _writing(self, name: str) -> Iterator[RDBStorage]:
        """Optuna's storage, this process being the only writer of that study. It holds no connection between calls."""
        with _quiet():
            storage = self._storage = self._storage or self._make_storage()
            with self._database.lock(f"projection {name}", wait_seconds=LOCK_SECONDS) as held:
                if not held:
                    raise StoreError(f"another process has been writing the Optuna study for {LOCK_SECONDS:.0f} s")
                try:
                    yield storage
                finally:
                    storage.remove_session()
                    storage.engine.dispose()

    def _make_storage(self) -> RDBStorage:
        """Opens Optuna's tables, making them where they are missing: one process at a time, as that races."""
        from optuna.storages import RDBStorage

        self._make_schema()
        options: dict[str, Any] = {"connect_args": {"timeout": 30}}
        if not self._database.embedded:
            connect = {"application_name": "tuner-optuna"}
            options = {"pool_size": 1, "max_overflow": 1, "pool_pre_ping": True, "connect_args": connect}
        with self._database.lock("optuna tables", wait_seconds=LOCK_SECONDS):
            return RDBStorage(self.url(), engine_kwargs=options)

    def _make_schema(self) -> None:
        """Creates the schema where it is missing; asking first, as ``IF NOT EXISTS`` needs the right to create."""
        if self._database.embedded:
            return
        there = text("SELECT 1 FROM pg_namespace WHERE nspname = :name")
        if self._database.read(lambda session: session.scalar(there, {"name": SCHEMA})) is None:
            self._database.write(lambda session: session.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")))


def choices(study: StudyRecord, baseline: TrialRecord | None) -> dict[str, tuple[Any, ...]]:
    """The values of each searched knob, in the spec's order, then the baseline's where it lies outside the space.

    Optuna refuses another set or order of choices later on, so this depends on nothing that changes during a study.
    """
    space: Mapping[str, Sequence[Any]] = study.spec.get("search", {})
    config = baseline.config if baseline is not None else {}
    return {
        knob: (*values, *(config[name] for name in (knob,) if name in config and not _has(values, config[name])))
        for knob, values in space.items()
    }


def frozen_trial(trial: TrialRecord, space: Mapping[str, tuple[Any, ...]], limit: int | None) -> FrozenTrial:
    """One finished trial of ours as one of Optuna's. A value outside the space is left out of its parameters."""
    from optuna.distributions import CategoricalDistribution
    from optuna.trial import TrialState, create_trial

    params = {knob: trial.config[knob] for knob in space if _has(space[knob], trial.config.get(knob))}
    distributions: dict[str, BaseDistribution] = {knob: CategoricalDistribution(space[knob]) for knob in params}
    words = _told(trial, limit)
    made = create_trial(
        state=TrialState[words.state],
        values=words.values,
        params=params,
        distributions=distributions,
        user_attrs=_attributes(trial),
        constraints=None if words.fits is None else {CONSTRAINT: words.fits},
    )
    made.datetime_start = _local(trial.created_at)
    made.datetime_complete = _local(trial.finished_at or trial.created_at)
    return made


def _attributes(trial: TrialRecord) -> dict[str, Any]:
    names = ("number", "outcome", "cause", "confidence", "source", "confirmed", "throughput_unit")
    figures = {name: getattr(trial, name) for name in names}
    return {TRIAL_ID: trial.id, **figures, "config": dict(trial.config), "seconds": trial.seconds}


def _told(trial: TrialRecord, limit: int | None) -> Told:
    return told(str(trial.outcome), trial.throughput, trial.peak_memory_bytes, limit)


def _shown(trial: FrozenTrial) -> Told:
    """What an Optuna trial was told."""
    if trial.values is None:
        return Told(state="FAIL")
    return Told(state="COMPLETE", values=(trial.values[0], trial.values[1]), fits=trial.constraints.get(CONSTRAINT))


def _has(values: Sequence[Any], value: Any) -> bool:
    """Whether a value is one of the choices, kind included: True is not 1 and 64 is not 64.0."""
    return any(type(value) is type(choice) and value == choice for choice in values)


def _create(storage: RDBStorage, name: str) -> Study:
    import optuna

    directions = [optuna.study.StudyDirection.MAXIMIZE, optuna.study.StudyDirection.MINIMIZE]
    shown = optuna.create_study(storage=storage, study_name=name, directions=directions, load_if_exists=True)
    study_id = storage.get_study_id_from_name(name)
    if METRIC_NAMES not in storage.get_study_system_attrs(study_id):
        storage.set_study_system_attr(study_id, METRIC_NAMES, list(METRICS))
    return shown


def _id_of(storage: RDBStorage, name: str) -> int | None:
    try:
        return storage.get_study_id_from_name(name)
    except KeyError:
        return None


def _local(moment: datetime) -> datetime:
    """Optuna takes and gives naive local times (and stores UTC)."""
    return moment.astimezone().replace(tzinfo=None)


def _innermost(error: BaseException) -> str:
    """The last cause's own words: Optuna hides "too many clients" behind a guess about invalid data."""
    while error.__cause__ is not None:
        error = error.__cause__
    return root_cause(error)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps Optuna from announcing each study on stderr."""
    logger = logging.getLogger("optuna")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
