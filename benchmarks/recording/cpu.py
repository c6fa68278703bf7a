"""Records a grid on this machine's CPU as exhaustive studies: stored trials and runs, exported as tables.

The store is the memory: a recording that was killed loses the run it was making and goes on there. The uncut grid is
one study; each cap is another (``name@160MiB``), whose memory limit is the cap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.recording import material
from benchmarks.recording.cuts import Row
from benchmarks.recording.grids import Grid
from benchmarks.recording.plan import REPEATS, Done, Plan, Todo, next_run
from benchmarks.recording.tables import cap_name, row_key, write_tables
from objectives.config import TrainingConfig
from objectives.knobs import config_key, knob
from objectives.trial.protocol import WindowPlan
from storage import runs, studies, trials
from storage.database import Database
from storage.records import RunRecord, StudyRecord, TrialRecord
from tuner import spec as specs
from tuner.answer.summary import StudyView
from tuner.errors import StudyError
from tuner.export import table
from tuner.export.table import NOT_ITS_OWN
from tuner.settings import Settings
from tuner.spec.model import MemoryLimit, StudySpec
from tuner.stop import Stop
from tuner.work import attempts
from tuner.work.estimating import estimate
from tuner.work.lane import choose_devices
from tuner.work.preparation import prepare
from tuner.work.session import Session
from tuner.work.study import opened, take_up
from tuner.work.trial_runs import begin

SOURCE = "grid"
WARM_LOAD_SECONDS = 3.0
"""Load before the first window of a sitting: a cold machine is not what the rest is measured on."""

Configs = Mapping[str, TrainingConfig]


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What is recorded, and where.

    Attributes:
        grid: Which grid.
        spec: Its spec.
        database: The store.
        folder: Local folder for locks and logs of runs in progress.
        out: Where its tables go.
        repeats: Further runs of what decides.
        stop: Asks for the end; what is done is kept.
        say: Takes progress.
    """

    grid: Grid
    spec: StudySpec
    database: Database
    folder: Path
    out: Path
    repeats: int = REPEATS
    stop: Stop
    say: Callable[[str], None]


def read_spec(grid: Grid, settings: Settings) -> StudySpec:
    """The grid's spec, its material made in the data folder."""
    if not grid.material:
        return specs.read(grid.spec_file, settings=settings)
    place = material.make(grid.material, settings.data_dir / "material")
    return specs.read(grid.spec_file, settings=settings, overrides={"objective.data.path": str(place)})


def record(recording: Recording) -> list[Path]:
    """Records what is missing and writes the tables. Returns their files; none when it was stopped before the end.

    Raises:
        StudyError: The store has another study of that name, or the machine has another number of cores.
        TightfitError: The study cannot be worked on here.
    """
    _require_cores(recording)
    with ExitStack() as stack:
        sitting = _Sitting(recording, stack)
        while not recording.stop.is_set():
            plan = plan_of(recording, list(sitting.configs))
            todo = next_run(plan)
            if todo is None:
                return _write(recording, plan)
            sitting.perform(todo)
    return []


class _Sitting:
    """One process's part in a recording: the study of the uncut grid, and those of the caps once they are needed."""

    def __init__(self, recording: Recording, stack: ExitStack) -> None:
        self._recording, self._stack, self._warm = recording, stack, False
        self._uncut = stack.enter_context(_session(recording, recording.spec))
        self._sessions: dict[int | None, Session] = {None: self._uncut}
        self.configs = _order(self._uncut)

    def perform(self, todo: Todo) -> None:
        """Makes one run and stores it."""
        session, config = self._session(todo.cap_bytes), self.configs[todo.key]
        self._recording.say(f"{self._recording.grid.name} {todo.why}: {described(config)}")
        load = 0.0 if self._warm else WARM_LOAD_SECONDS
        self._warm = True
        _perform(session, config, todo, replace(session.window(), warm_load_seconds=load))

    def _session(self, cap: int | None) -> Session:
        if cap is not None and cap not in self._sessions:
            self._sessions[cap] = self._stack.enter_context(_capped(self._recording, self._uncut, cap))
        return self._sessions[cap]


def described(config: TrainingConfig) -> str:
    """What of a configuration is not a default, in a line."""
    told = {name: value for name, value in config.knobs().items() if value != knob(name).default}
    return " ".join(f"{name}={value}" for name, value in told.items())


def plan_of(recording: Recording, keys: list[str]) -> Plan:
    """The grid as far as the store has it."""
    done = _done(_rows(recording.database, recording.spec.study), None)
    plan = Plan(keys=keys, done=done, repeats=recording.repeats)
    if plan.missing:
        return plan
    for cap in plan.memory_caps:
        done += _done(_rows(recording.database, _cut_name(recording.spec, cap)), cap)
    return replace(plan, done=done)


@contextmanager
def _session(recording: Recording, spec: StudySpec, facts: StudyRecord | None = None) -> Iterator[Session]:
    """A session on the study, made if need be; what a dead recorder left running is freed for its next attempt."""
    study = _study(recording.database, spec, facts)
    with opened(
        recording.database, study, spec, folder=recording.folder, stop=recording.stop, report=lambda _said: None
    ) as session:
        take_up(session)
        prepare(session)
        try:
            yield session
        finally:
            session.save_seconds()
            studies.set_status(recording.database, study.id, "paused", "recorded as far as it goes")


def _study(database: Database, spec: StudySpec, facts: StudyRecord | None) -> StudyRecord:
    stored, identity = specs.to_mapping(spec), specs.identity(spec)
    known = studies.find(database, spec.study)
    if known is None:
        known = studies.create(database, name=spec.study, spec=stored, identity=identity)
        return known if facts is None else studies.set_facts(database, known.id, facts.facts)
    if lines := specs.difference(known.identity, identity):
        raise StudyError(f"study {spec.study!r} was recorded from another spec: {'; '.join(lines)}; use another store")
    return studies.update_spec(database, known.id, stored)


def _capped(recording: Recording, uncut: Session, cap: int) -> AbstractContextManager[Session]:
    """A session on the study of a cap, which knows what the uncut grid's preparation found."""
    spec = recording.spec
    limits = replace(spec.limits, memory=MemoryLimit(size_bytes=cap))
    return _session(recording, replace(spec, study=_cut_name(spec, cap), limits=limits), uncut.study)


def _cut_name(spec: StudySpec, cap: int) -> str:
    return f"{spec.study}@{cap_name(cap)}"


def _require_cores(recording: Recording) -> None:
    cores = choose_devices(recording.spec.device)[0].threads
    if cores != recording.grid.cores:
        raise StudyError(
            f"{recording.grid.name} is recorded on {recording.grid.cores} core(s), and this process may use {cores}: "
            "record it on a machine that has as many"
        )


def _order(session: Session) -> Configs:
    """Every configuration by key, the baseline first, the others shuffled. Their memory is predicted on the way."""
    prepared, _ = estimate(session)
    baseline, space = prepared.baseline_and_space(session.spec)
    walk = sorted(space.keyed(), key=lambda each: hashlib.sha256(each[0].encode()).hexdigest())
    return {config_key(baseline.config): baseline.config} | dict(walk)


def _perform(session: Session, config: TrainingConfig, todo: Todo, window: WindowPlan) -> None:
    """Makes one run and stores it."""
    lane, deadlines = session.lane, session.deadlines()
    mine = [trial for trial in session.trials() if trial.config_key == todo.key]
    if todo.repeat:
        measured = next(trial for trial in mine if trial.outcome == "completed")
        attempts.further_window(session, lane, begin(session, lane, measured, "repeat", window), deadlines)
        return
    trial = next((trial for trial in mine if trial.outcome is None), None) or _reserved(session, config, todo.key)
    attempts.search(session, lane, begin(session, lane, trial, "search", window), window, deadlines)


def _reserved(session: Session, config: TrainingConfig, key: str) -> TrialRecord:
    predictions: Mapping[str, Mapping[str, int]] = session.study.facts.get("predictions", {})
    made = trials.reserve(
        session.database,
        study_id=session.study.id,
        config=config.to_mapping(),
        config_key=key,
        source=SOURCE,
        predicted_peak_memory_bytes=predictions.get(key, {}).get("peak_memory_bytes"),
        worker_id=session.worker_id,
    )
    assert made is not None, "only a study with a limit of trials refuses one"
    return made


def _rows(database: Database, name: str) -> tuple[tuple[TrialRecord, ...], tuple[RunRecord, ...]]:
    study = studies.find(database, name)
    if study is None:
        return (), ()
    return trials.list_of(database, study.id), runs.list_of(database, study_id=study.id)


def _done(rows: tuple[tuple[TrialRecord, ...], tuple[RunRecord, ...]], cap: int | None) -> list[Done]:
    """The runs that say something of their configuration, in the order of time; a retried search run does not."""
    ended = {trial.id: trial for trial in rows[0] if trial.outcome not in NOT_ITS_OWN}
    last = {run.trial_id: run.id for run in rows[1] if run.purpose == "search"}
    told = (
        run for run in rows[1] if run.trial_id in ended and (run.purpose == "repeat" or last[run.trial_id] == run.id)
    )
    return [_done_run(run, ended[run.trial_id or 0], cap) for run in told if run.outcome not in NOT_ITS_OWN]


def _done_run(run: RunRecord, trial: TrialRecord, cap: int | None) -> Done:
    measured = run.outcome == "completed"
    return Done(
        key=trial.config_key,
        cap_bytes=cap,
        outcome=str(run.outcome),
        throughput=run.throughput if measured else None,
        peak_memory_bytes=run.peak_memory_bytes if measured else None,
    )


def _write(recording: Recording, plan: Plan) -> list[Path]:
    """The tables of the grid and of its caps, from what the product exports of each study."""
    view = _view(recording, recording.spec.study)
    real = {cap: _exported(_view(recording, _cut_name(recording.spec, cap))) for cap in plan.memory_caps}
    head = table.head(view) | {
        "cores": recording.grid.cores,
        "recorded": datetime.now(UTC).date().isoformat(),
        "seconds": sum(run.seconds for run in view.runs),
    }
    return write_tables(recording.out, head, table.rows(view), real)


def _view(recording: Recording, name: str) -> StudyView:
    study = studies.find(recording.database, name)
    assert study is not None, f"{name} was recorded"
    found, made = _rows(recording.database, name)
    return StudyView(study=study, trials=found, runs=made, spec=specs.from_mapping(study.spec))


def _exported(view: StudyView) -> dict[str, Row]:
    return {row_key(row): row for row in table.rows(view)}
