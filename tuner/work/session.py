"""What every phase of a study's work shares: the store, the spec, the clock, who watches, and how one run is made."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from objectives.config import TrainingConfig
from objectives.knobs import environment as knob_environment
from objectives.trial.protocol import Purpose, RunRequest, WindowPlan
from storage import runs, studies, trials
from tuner.progress import Notice, OnProgress, StepSeen, TrialEnded, TrialStarted, ignore
from tuner.search.schedule import History
from tuner.work.lane import Lane, new_run_id
from tuner.work.runner import Deadlines, RunEnd

if TYPE_CHECKING:
    from objectives.trial.protocol import Event
    from storage.database import Database
    from storage.records import RunRecord, StudyRecord, TrialRecord
    from tuner.spec.model import StudySpec
    from tuner.stop import Stop

SHORTEST_WINDOW_SHARE = 0.5
"""A window may stop early when it is narrow enough, but not before this share of its longest time."""


@dataclass(kw_only=True)
class Session:
    """One process working on one study.

    Attributes:
        study: The study's row; its facts are filled by the preparation.
        lanes: One per device.
        stop: Set when a person asked to end.
        report: Takes progress.
        begun: ``time.monotonic()`` at which this session's work began.
    """

    database: Database
    study: StudyRecord
    spec: StudySpec
    lanes: tuple[Lane, ...]
    stop: Stop
    report: OnProgress = ignore
    begun: float = field(default_factory=time.monotonic)

    @property
    def lane(self) -> Lane:
        """The first lane: preparation and confirmation run there."""
        return self.lanes[0]

    def elapsed_seconds(self) -> float:
        """Wall time spent on the study, earlier sessions included."""
        return self.study.seconds + time.monotonic() - self.begun

    def seconds_left(self, share: float = 1.0) -> float | None:
        """Of that share of the time limit; None without a limit."""
        limit = self.spec.limits.time_seconds
        return None if limit is None else limit * share - self.elapsed_seconds()

    def refresh(self, study: StudyRecord) -> None:
        """Takes over the study's row as just written; the clock goes on."""
        self.study = replace(study, seconds=self.study.seconds)

    def trials(self) -> tuple[TrialRecord, ...]:
        """The study's trials as the store has them now."""
        return trials.list_of(self.database, self.study.id)

    def runs(self) -> tuple[RunRecord, ...]:
        """The study's runs as the store has them now."""
        return runs.list_of(self.database, study_id=self.study.id)

    def history(self, busy: frozenset[int] = frozenset()) -> History:
        """The study as it stands; ``busy``: trials that run right now."""
        return History(
            trials=self.trials(),
            runs=self.runs(),
            elapsed_seconds=self.elapsed_seconds(),
            limit_bytes=self.study.memory_limit_bytes,
            device_kind=self.lane.device.kind,
            busy=busy,
        )

    def save_seconds(self) -> None:
        """Adds this session's time to the study."""
        studies.add_seconds(self.database, self.study.id, time.monotonic() - self.begun)

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

    def run_trial(
        self,
        lane: Lane,
        trial: TrialRecord,
        purpose: Purpose,
        window: WindowPlan,
        *,
        deadlines: Deadlines,
        attempt: int = 1,
        memory_limit_bytes: int | None = None,
    ) -> tuple[str, RunEnd]:
        """Runs one child for a trial; its row is stored before it starts. Returns the run's id and its end.

        Args:
            lane: Where.
            trial: As stored.
            purpose: ``search``, ``repeat`` or ``confirm``.
            window: How long it measures.
            deadlines: How long it may take.
            attempt: Number among the trial's runs of that purpose.
            memory_limit_bytes: Another cap than the study's limit (a doubtful signal near the cap gets more room).
        """
        config = TrainingConfig.from_mapping(trial.config)
        request = self.request(
            purpose,
            lane,
            config=config.to_mapping(),
            global_batch_size=config.micro_batch_size * config.accumulation_steps,
            window=window,
        )
        if memory_limit_bytes is not None:
            request = replace(request, memory_limit_bytes=memory_limit_bytes)
        left = self.seconds_left()
        self.report(
            TrialStarted(
                number=trial.number,
                config=trial.config,
                purpose=purpose,
                predicted_peak_memory_bytes=trial.predicted_peak_memory_bytes,
                seconds_left=left,
            )
        )
        runs.start(
            self.database, id=request.run, study_id=self.study.id, trial_id=trial.id, purpose=purpose, attempt=attempt
        )
        end = lane.run(
            request,
            deadlines,
            environment=self.spec.environment,
            watch=Reporter(session=self, trial=trial).watch,
            cancelled=self.stop.is_set,
            on_wait=self._waiting,
        )
        self.report(trial_ended(trial, purpose, end, self.seconds_left()))
        return request.run, end

    def _waiting(self, holder: str) -> None:
        self.report(Notice(text=f"the device is in use; waiting for it ({holder})"))


@dataclass(kw_only=True)
class Reporter:
    """Turns one run's events into progress."""

    session: Session
    trial: TrialRecord
    steps: int = 0
    units: float = 0.0
    seconds: float = 0.0
    memory_bytes: int | None = None
    phase: str = "import"

    def watch(self, event: Event) -> str | None:
        """Sees an event; never asks the run to stop."""
        fields: Mapping[str, Any] = event.fields
        if event.event == "phase":
            self.phase, self.units, self.seconds = str(fields["phase"]), 0.0, 0.0
        elif event.event == "memory":
            self.memory_bytes = fields.get("peak_memory_bytes")
        elif event.event == "step":
            self.steps += 1
            self.units += 0 if fields.get("skipped") else float(fields["units"])
            self.seconds += float(fields["seconds"])
        else:
            return None
        self._report()
        return None

    def _report(self) -> None:
        self.session.report(
            StepSeen(
                number=self.trial.number,
                steps=self.steps,
                phase=self.phase,
                rate=self.units / self.seconds if self.seconds else None,
                memory_bytes=self.memory_bytes,
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
