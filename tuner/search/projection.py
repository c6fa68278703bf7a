"""Our trials as an Optuna study in the same database, for Optuna's own tools (``load_study``, optuna-dashboard).

A projection only: written after our rows are committed, never read by the search, healed by any process, rebuilt by one
call. On PostgreSQL it lives in the schema ``optuna``, because Optuna's table of versions has the same name as those of
other tools; open it there with ``postgresql+psycopg2://.../db?options=-csearch_path%3Doptuna``.

What has been projected is kept as the study's version and limit beside Optuna's study: healing costs what has changed
since. Optuna's own processes keep finished trials in memory, so they see a changed one when they are opened anew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from storage import studies, trial_table, trials
from storage.errors import StorageError, root_cause
from storage.locks import hold
from storage.url import secret_of
from tuner.errors import StoreError
from tuner.search.told import CONSTRAINT, told

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial
    from sqlalchemy.orm import Session

    from storage.database import Database
    from storage.records import Json, StudyRecord, TrialRecord

SCHEMA = "optuna"
METRICS = ("throughput", "peak_memory_bytes")
TRIAL_ID = "tuner_trial"
"""User attribute of an Optuna trial: the id of our row it shows."""
METRIC_NAMES = "study:metric_names"
"""Optuna's own key for what ``Study.set_metric_names`` stores (that call is experimental and warns)."""
PROJECTED = "tuner:projected"
"""System attribute of an Optuna study: up to which version, and for which limit, our trials are in it."""
DASHBOARD_CONSTRAINTS = "constraints"
"""The older form of constraints, the only one optuna-dashboard 0.21 reads: without it, it shows what does not fit as if
it did. Optuna itself sees the same number under two names then."""
LOCK_SECONDS = 60.0
CHUNK = 500
"""Trials written in one transaction: some tenths of a second in which an embedded store has no other writer."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is to be written of a study: the trials with these ids, after which the projection is at ``goal``."""

    study: StudyRecord
    goal: Json
    ids: tuple[int, ...]


class Projection:
    """Writes the projection of one store. Any number of processes may do it at once; each trial is written once.

    The first use imports Optuna (half a second) and looks at its tables; a trial then costs about a millisecond. It
    takes one of the store's connections while it works, and none between calls.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ready = False

    def url(self) -> str:
        """What to give Optuna as ``storage``. Holds the password: never show it."""
        url = self._database.url
        if not self._database.embedded:
            given = str(url.query.get("options", ""))
            url = url.update_query_dict({"options": f"{given} -csearch_path={SCHEMA}".strip()})
        return url.render_as_string(hide_password=False)

    def heal(self, study_id: int) -> int:
        """Writes the trials that have ended or changed since the last time; returns how many.

        Raises:
            StoreError: Optuna's tables cannot be used; nothing of ours is affected.
        """
        with self._words():
            self._prepare()
            work = self._database.read(lambda session: self._work(session, study_id))
            return 0 if work is None else self._do(work)

    def rebuild(self, study_id: int) -> int:
        """Makes the projection of a study anew; returns how many trials it has.

        Raises:
            StoreError: As in :meth:`heal`.
        """
        self.delete(studies.get(self._database, study_id).name)
        return self.heal(study_id)

    def delete(self, name: str) -> None:
        """Removes the projection of a study that was deleted.

        Raises:
            StoreError: As in :meth:`heal`.
        """
        with self._words():
            self._prepare()
            self._database.write(lambda session: self._delete(session, name), repeatable=True)

    def _work(self, session: Session, study_id: int) -> Work | None:
        """None where nothing has changed. The version is read before the trials: it never promises too much."""
        from tuner.search import optuna_rows

        study = studies.get_in(session, study_id)
        goal = {"version": study.version, "limit": study.memory_limit_bytes}
        with self._in_optuna(session):
            there = optuna_rows.find_study(session, study.name)
            done = {} if there is None else optuna_rows.attribute(session, there, PROJECTED)
        if _has_reached(done, goal):
            return None
        since = int(done.get("version", 0)) if done.get("limit") == goal["limit"] else 0
        return Work(study=study, goal=goal, ids=trial_table.ended_ids_in(session, study_id, since=since))

    def _do(self, work: Work) -> int:
        space = choices(work.study, trials.baseline(self._database, work.study.id)) if work.ids else {}
        kinds = distributions(space)
        parts = [work.ids[start : start + CHUNK] for start in range(0, len(work.ids), CHUNK)] or [()]
        written = 0
        for part in parts:
            last = part is parts[-1]
            written += self._database.write(
                lambda session, part=part, last=last: self._put(session, work, kinds, part, last=last),  # type: ignore[misc]
                repeatable=True,
            )
        return written

    def _put(
        self, session: Session, work: Work, kinds: Mapping[str, BaseDistribution], ids: Sequence[int], *, last: bool
    ) -> int:
        """One part of the work; returns how many trials, 0 where another process has done it all meanwhile."""
        from tuner.search import optuna_rows

        hold(session, f"projection {work.study.name}")
        rows = trial_table.by_ids_in(session, ids)
        limit = work.study.memory_limit_bytes
        with self._in_optuna(session):
            there = optuna_rows.find_study(session, work.study.name, lock=True) or self._make(session, work.study.name)
            if _has_reached(optuna_rows.attribute(session, there, PROJECTED), work.goal):
                return 0
            optuna_rows.put_trials(session, there, TRIAL_ID, [frozen_trial(trial, kinds, limit) for trial in rows])
            if last:
                optuna_rows.set_attribute(session, there, PROJECTED, dict(work.goal))
        return len(rows)

    def _make(self, session: Session, name: str) -> int:
        from optuna.study import StudyDirection

        from tuner.search import optuna_rows

        there = optuna_rows.make_study(session, name, (StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE))
        optuna_rows.set_attribute(session, there, METRIC_NAMES, list(METRICS))
        return there

    def _delete(self, session: Session, name: str) -> None:
        from tuner.search import optuna_rows

        hold(session, f"projection {name}")
        with self._in_optuna(session):
            there = optuna_rows.find_study(session, name)
            if there is not None:
                optuna_rows.delete_study(session, there)

    @contextmanager
    def _in_optuna(self, session: Session) -> Iterator[None]:
        """Unqualified names mean Optuna's tables inside, and ours again behind."""
        if self._database.embedded:
            yield
            return
        before = session.scalar(text("SELECT current_setting('search_path')"))
        path = text("SELECT set_config('search_path', :path, true)")
        session.execute(path, {"path": SCHEMA})
        yield
        session.execute(path, {"path": before})

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

    def _prepare(self) -> None:
        """Makes Optuna's tables where they are missing, one process at a time, as that races; refuses foreign ones."""
        if self._ready:
            return
        self._make_schema()
        with _quiet(), self._database.lock("optuna tables", wait_seconds=LOCK_SECONDS) as held:
            if not held:
                raise StoreError(f"another process has been making Optuna's tables for {LOCK_SECONDS:.0f} s")
            self._open_tables()
        self._ready = True

    def _open_tables(self) -> None:
        from optuna.storages import RDBStorage

        options: dict[str, Any] = {"connect_args": {"timeout": 30}}
        if not self._database.embedded:
            options = {"pool_size": 1, "connect_args": {"application_name": "tuner-optuna"}}
        storage = RDBStorage(self.url(), engine_kwargs=options)
        storage.remove_session()
        storage.engine.dispose()

    def _make_schema(self) -> None:
        """Creates the schema where it is missing; asking first, as ``IF NOT EXISTS`` needs the right to create.

        ``IF NOT EXISTS`` is no help against another process at the same moment: one of the two fails.
        """
        if self._database.embedded:
            return
        there = text("SELECT 1 FROM pg_namespace WHERE nspname = :name")
        if self._database.read(lambda session: session.scalar(there, {"name": SCHEMA})) is None:
            self._database.write(_make_schema)


def _has_reached(done: Json, goal: Json) -> bool:
    """Whether a projection is as far as that, for the same limit."""
    return done.get("limit") == goal["limit"] and int(done.get("version", 0)) >= int(goal["version"])


def _make_schema(session: Session) -> None:
    hold(session, "optuna schema")
    session.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))


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


def distributions(space: Mapping[str, tuple[Any, ...]]) -> dict[str, BaseDistribution]:
    """Each knob's choices as Optuna keeps them."""
    from optuna.distributions import CategoricalDistribution

    return {knob: CategoricalDistribution(values) for knob, values in space.items()}


def frozen_trial(trial: TrialRecord, kinds: Mapping[str, BaseDistribution], limit: int | None) -> FrozenTrial:
    """One finished trial of ours as one of Optuna's. A value outside the space is left out of its parameters."""
    from optuna.trial import TrialState, create_trial

    params = {knob: trial.config[knob] for knob in kinds if _has(_choices(kinds[knob]), trial.config.get(knob))}
    words = told(str(trial.outcome), trial.throughput, trial.peak_memory_bytes, limit)
    made = create_trial(
        state=TrialState[words.state],
        values=words.values,
        params=params,
        distributions={knob: kinds[knob] for knob in params},
        user_attrs=_attributes(trial),
        system_attrs={} if words.fits is None else {DASHBOARD_CONSTRAINTS: [words.fits]},
        constraints=None if words.fits is None else {CONSTRAINT: words.fits},
    )
    made.datetime_start = _local(trial.created_at)
    made.datetime_complete = _local(trial.finished_at or trial.created_at)
    return made


def _choices(kind: BaseDistribution) -> Sequence[Any]:
    found: Sequence[Any] = kind.choices  # type: ignore[attr-defined]
    return found


def _attributes(trial: TrialRecord) -> dict[str, Any]:
    names = ("number", "outcome", "cause", "confidence", "source", "confirmed", "throughput_unit")
    figures = {name: getattr(trial, name) for name in names}
    return {TRIAL_ID: trial.id, **figures, "config": dict(trial.config), "seconds": trial.seconds}


def _has(values: Sequence[Any], value: Any) -> bool:
    """Whether a value is one of the choices, kind included: True is not 1 and 64 is not 64.0."""
    return any(type(value) is type(choice) and value == choice for choice in values)


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
