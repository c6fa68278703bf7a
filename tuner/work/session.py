"""What every phase of a study's work shares: the store, the spec, the clock, who watches, and how one run is made."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from objectives.config import TrainingConfig
from objectives.knobs import environment as knob_environment
from objectives.trial.protocol import Purpose, RunRequest, WindowPlan
from storage import studies
from tuner.errors import MachineError
from tuner.progress import Notice, OnProgress, StepSeen, TrialEnded, ignore
from tuner.search.renewal import current_runs, since_of
from tuner.search.schedule import History
from tuner.work.advance import Advance
from tuner.work.clock import StudyClock
from tuner.work.dominance import DominanceWatch
from tuner.work.lane import Lane, new_run_id
from tuner.work.outbox import Outbox, Result
from tuner.work.outbox import store as store_result
from tuner.work.patience import patiently
from tuner.work.rows import StudyRows
from tuner.work.runner import Deadlines, RunEnd, Watch, unable

if TYPE_CHECKING:
    from objectives.trial.protocol import Event
    from storage.database import Database
    from storage.records import StudyRecord, TrialRecord
    from tuner.spec.model import StudySpec
    from tuner.work.leaving import Leaving

Answer = TypeVar("Answer")
DECIDE_SECONDS = 30.0
"""How long a worker waits for its turn to decide."""
SHORTEST_WINDOW_SHARE = 0.5
"""A window may stop early when it is narrow enough, but not before this share of its longest time."""


@dataclass(kw_only=True)
class Session:
    """One process working on one study.

    Attributes:
        study: The study's row; its facts are filled by the preparation.
        lanes: One per device.
        stop: Says when to leave the study before its end.
        outbox: Where results of runs go first.
        report: Takes progress.
        worker_id: This process in the store; None where it is not registered.
        shared: Whether other processes work on the study at the same time.
        after_its_end: Whether the study stands as it is meanwhile: its status is no reason to leave (unless it is
            deleted), and the time is not the study's.
        keepalive_seconds: A child that hears nothing for so long ends itself.
        workers: How many processes work on it now, as last seen.
        look: Called between two runs, and with True while there is nothing to run: may find a reason to leave.
        running: Ids of this process's runs in progress.
        taken_away: Those that were declared lost meanwhile: their children are ended.
        advances: How far each of the runs in progress has come, by id.
    """

    database: Database
    study: StudyRecord
    spec: StudySpec
    lanes: tuple[Lane, ...]
    stop: Leaving
    outbox: Outbox
    report: OnProgress = ignore
    worker_id: str | None = None
    shared: bool = False
    after_its_end: bool = False
    keepalive_seconds: float = 60.0
    workers: int = 1
    look: Callable[[Session, bool], None] = lambda _session, _idle: None
    running: set[str] = field(default_factory=set)
    taken_away: set[str] = field(default_factory=set)
    advances: dict[str, Advance] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = StudyClock(self.study.seconds)
        self._rows = StudyRows(self.database, self.study.id)
        self._worked_out: dict[int, tuple[TrialRecord, TrialRecord]] = {}
        self._deciding = threading.Lock()

    @property
    def lane(self) -> Lane:
        """The first lane: preparation and confirmation run there."""
        return self.lanes[0]

    def elapsed_seconds(self) -> float:
        """Wall time spent on the study, earlier sessions included."""
        return self.clock.elapsed_seconds()

    def seconds_left(self, share: float = 1.0) -> float | None:
        """Of that share of the time limit; None without a limit."""
        limit = self.spec.limits.time_seconds
        return None if limit is None else limit * share - self.elapsed_seconds()

    def refresh(self, study: StudyRecord) -> None:
        """Takes over the study's row as just written."""
        self.study = study

    def trials(self) -> tuple[TrialRecord, ...]:
        """The study's trials as the store has them now."""
        return self._rows.read().trials

    def history(self) -> History:
        """The study as it stands; busy is a trial with a run in progress, on whichever worker."""
        rows = self._rows.read()
        runs = current_runs(rows.runs, since_of(self.study.facts))
        return History(
            trials=rows.trials,
            runs=runs,
            elapsed_seconds=self.elapsed_seconds(),
            limit_bytes=self.study.memory_limit_bytes,
            device_kind=self.lane.device.kind,
            busy=frozenset(run.trial_id for run in runs if run.outcome is None and run.trial_id is not None),
            readings=rows.readings,
            worked_out=self._worked_out,
        )

    def save_seconds(self) -> None:
        """Adds this session's time since the last call to the study."""
        self.clock.set(studies.add_seconds(self.database, self.study.id, self.clock.take(self.workers)).seconds)

    def request(self, purpose: Purpose, lane: Lane, **values: Any) -> RunRequest:
        """A request of this study for a device; ``values`` are further fields of :class:`RunRequest`."""
        device = lane.device
        pinned = {"CUDA_VISIBLE_DEVICES": device.uuid} if device.kind == "cuda" else {}
        config = values.get("config", {})
        knobs = knob_environment(TrainingConfig.from_mapping(config)) if config else {}
        spoken = {name: value for name, value in knobs.items() if value or name not in self.spec.environment}
        return RunRequest(
            run=new_run_id(),
            purpose=purpose,
            objective=self.spec.objective,
            device=device.kind,
            device_uuid=device.uuid,
            seed=self.spec.seed,
            max_grad_norm=self.spec.max_grad_norm,
            learning_rate=self.spec.learning_rate,
            memory_limit_bytes=self.study.memory_limit_bytes,
            threads=device.threads,
            keepalive_seconds=self.keepalive_seconds,
            environment={**pinned, **spoken},
            **values,
        )

    def deadlines(self, share: float = 1.0, *, factor: float = 1.0, limited: bool = True) -> Deadlines:
        """Deadlines of a run that must end within a share of the study's time.

        Args:
            share: Of the study's time limit.
            factor: Stretches the trial time.
            limited: False for runs that the study's own time does not end (a confirmation's last round).
        """
        limits, left = self.spec.limits, self.seconds_left(share) if limited else None
        return Deadlines(
            trial_seconds=limits.trial_time_seconds * factor,
            compile_seconds=limits.compile_time_seconds,
            ends_at=None if left is None else time.monotonic() + max(left, 0.0),
        )

    def window(self, *, factor: float = 1.0, warm_load_seconds: float = 0.0) -> WindowPlan:
        """The measuring window of a search run, or ``factor`` times as long."""
        longest = self.spec.limits.window_seconds * factor
        target = self.spec.limits.target_half_width
        return WindowPlan(
            min_seconds=longest if target == 0 else longest * SHORTEST_WINDOW_SHARE,
            max_seconds=longest,
            target_half_width=target,
            warm_load_seconds=warm_load_seconds,
        )

    def execute(
        self,
        lane: Lane,
        request: RunRequest,
        deadlines: Deadlines,
        watch: Watch = lambda _event: None,
        *,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> RunEnd:
        """Runs one child of this study to its end. A machine that cannot run it is an ``infra`` outcome, no error.

        The run counts as running until :meth:`store` has kept its end.

        Args:
            lane: Where.
            request: What the child is asked.
            deadlines: How long it may take.
            watch: Sees its events.
            environment: Process-start variables; None for the spec's.
            prefix: A command that starts the child's interpreter (a profiler).
        """
        self.running.add(request.run)
        begun = time.monotonic()

        def seen(event: Event) -> str | None:
            self.advances[request.run] = self.advances.get(request.run, Advance()).after(event)
            return watch(event)

        try:
            return lane.run(
                request,
                deadlines,
                environment=self.spec.environment if environment is None else environment,
                watch=seen,
                cancelled=lambda: self.stop.ends_run() or request.run in self.taken_away,
                on_wait=self.waiting,
                prefix=prefix,
            )
        except MachineError as error:
            return unable(error, time.monotonic() - begun)
        finally:
            self.advances.pop(request.run, None)

    def acquire(self, lane: Lane) -> bool:
        """Takes the device for the next run; False when there is a reason to leave before it is free.

        The wait is no time spent on the study.
        """
        begun = time.monotonic()
        held = lane.acquire(on_wait=self.waiting, cancelled=self.stop.is_set)
        self.clock.forgive((time.monotonic() - begun) / len(self.lanes))
        return held

    def store(self, result: Result) -> None:
        """Keeps how a run ended: in the outbox first, so that it survives a store that is away and this process."""
        try:
            path = self.outbox.put(result)
        except OSError as error:
            self.report(Notice(text=f"the outbox cannot be written ({error}): the result goes to the store directly"))
            self.patiently(lambda: store_result(self.database, result))
        else:
            self.patiently(lambda: self.outbox.deliver(path))
        finally:
            self.running.discard(result.run)

    def patiently(self, work: Callable[[], Answer]) -> Answer:
        """Does work on the store, however long that is away; raises its error when the run in progress has to end."""
        return patiently(
            work,
            give_up=self.stop.ends_run,
            on_wait=lambda cause: self.report(Notice(text=f"{cause}; nothing new is started until it is back")),
            on_back=lambda seconds: self.report(Notice(text=f"the store is back after {seconds:.0f} s")),
        )

    @contextmanager
    def deciding(self) -> Iterator[bool]:
        """Nobody else decides what this study runs next, or changes what that depends on; False when it was not got."""
        with self._deciding:
            if not self.shared:
                yield True
                return
            with self.database.lock(f"decide-{self.study.id}", wait_seconds=DECIDE_SECONDS) as held:
                yield held

    @contextmanager
    def alone(self, what: str) -> Iterator[bool]:
        """One process at a time does this for the study; False when there is a reason to leave before its turn."""
        while not self.stop.is_set():
            with self.database.lock(f"{what}-{self.study.id}", wait_seconds=1.0) as held:
                if held:
                    yield True
                    return
        yield False

    def wait_for_others(self, seconds: float) -> None:
        """There is nothing to run before somebody else's run ends: looks for a reason to leave meanwhile."""
        self.patiently(lambda: self.look(self, True))
        self.stop.wait(seconds)

    def waiting(self, holder: str) -> None:
        """Tells that the device is not free."""
        self.report(Notice(text=f"the device is in use; waiting for it ({holder})"))


@dataclass(kw_only=True)
class Reporter:
    """Turns one run's events into progress."""

    session: Session
    trial: TrialRecord
    pruner: DominanceWatch | None = None
    advance: Advance = field(default_factory=Advance)

    def watch(self, event: Event) -> str | None:
        """Sees an event; what the pruner says of it."""
        before, self.advance = self.advance, self.advance.after(event)
        if self.advance is before:
            return None
        self._report()
        return None if self.pruner is None else self.pruner.watch(event)

    def _report(self) -> None:
        self.session.report(
            StepSeen(
                number=self.trial.number,
                steps=self.advance.steps,
                phase=self.advance.phase,
                rate=self.advance.units_per_second,
                memory_bytes=self.advance.memory_bytes,
                limit_bytes=self.session.study.memory_limit_bytes,
                seconds_left=self.session.seconds_left(),
            )
        )


def trial_ended(trial: TrialRecord, purpose: str, end: RunEnd, seconds_left: float | None) -> TrialEnded:
    """The end of a run as progress."""
    return TrialEnded(
        number=trial.number,
        outcome=end.verdict.outcome,
        purpose=purpose,
        cause=end.verdict.cause,
        throughput=end.measurement.get("throughput"),
        unit=end.measurement.get("throughput_unit"),
        peak_memory_bytes=peak_of(end),
        seconds=end.seconds,
        message="its time was over" if end.ending.kill_reason == "study_time" else end.verdict.advice,
        seconds_left=seconds_left,
    )


def peak_of(end: RunEnd) -> int | None:
    """The run's peak memory: of its measurement, else of the worst case alone; None when it did not come so far."""
    measured = end.measurement.get("memory") or end.memory
    peak = measured.get("peak_memory_bytes")
    return None if peak is None else int(peak)
