"""Longer runs of a study that has its answer: ``verify``, ``soak``, ``profile``. Nothing of them is a measurement.

Each is a child like any other, on the study's first device, stored with its purpose; no trial's outcome changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from objectives.config import TrainingConfig
from objectives.contract import SCRIPT
from storage import runs
from tuner.answer.summary import StudyView
from tuner.errors import MachineError, StudyError, TightfitError
from tuner.function.travel import require_here
from tuner.progress import Notice
from tuner.work.outbox import Result
from tuner.work.preparation import prepare, what_happened
from tuner.work.runner import Deadlines
from tuner.work.study import opened

if TYPE_CHECKING:
    from pathlib import Path

    from objectives.trial.protocol import Event, Purpose
    from storage.database import Database
    from storage.records import TrialRecord
    from tuner.progress import OnProgress
    from tuner.stop import Stop
    from tuner.work.runner import RunEnd
    from tuner.work.session import Session

ROOM_SECONDS = 600.0
"""A longer run is ended so long after the time it was given: building and loading take their own."""

Measured = Callable[["RunEnd"], Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A study opened for a longer run.

    Attributes:
        view: Its rows as they stood when it was opened.
        folder: The data folder; files of a run are kept below it.
    """

    session: Session
    view: StudyView
    folder: Path

    @property
    def winner(self) -> TrialRecord:
        """The confirmed best, or the fastest of the front before there is one.

        Raises:
            StudyError: No trial of the study fits.
        """
        view = self.view
        best = next((each for each in view.ended if each.id == view.answer.best), None)
        found = best or next(iter(view.front), None)
        if found is None:
            raise StudyError(f"study {view.study.name!r} has no measured configuration that fits: there is no winner")
        return found

    @property
    def baseline(self) -> TrialRecord | None:
        """Trial 0; None before it has ended."""
        return next((each for each in self.view.ended if each.number == 0), None)

    def trial(self, number: int) -> TrialRecord:
        """A trial by its number.

        Raises:
            StudyError: There is none.
        """
        found = next((each for each in self.view.trials if each.number == number), None)
        if found is None:
            known = max((each.number for each in self.view.trials), default=None)
            have = "it has no trial yet" if known is None else f"its trials are 0 to {known}"
            raise StudyError(f"study {self.view.study.name!r} has no trial {number}: {have}")
        return found

    def require_workload(self, purpose: str) -> None:
        """Refuses a script's study: there is no workload of ours to look into.

        Raises:
            TightfitError: It is one.
        """
        if self.session.spec.objective.kind == SCRIPT:
            raise TightfitError(
                f"`tuner {purpose}` works on a model, its data and its loss; a study of kind `script` has none that "
                "can be called: write the training step as an objective of your own (the reference, `objective`)"
            )


@contextmanager
def bench(
    database: Database, view: StudyView, *, folder: Path, stop: Stop, report: OnProgress, lease_seconds: float
) -> Iterator[Bench]:
    """Opens a study for longer runs: nobody else works on it meanwhile, and its data is prepared here.

    Raises:
        StudyError: Another process works on it, or the workers have it.
        TightfitError: It was measured on another kind of device, or cannot be prepared here.
    """
    require_here(view.spec.objective)
    with opened(
        database, view.study, view.spec, folder=folder, stop=stop, report=report, lease_seconds=lease_seconds,
        after_its_end=True,
    ) as session:  # fmt: skip
        prepare(session)
        yield Bench(session=session, view=view, folder=folder)


@dataclass(frozen=True, kw_only=True)
class Order:
    """One longer run.

    Attributes:
        trial: Whose configuration runs.
        answer: What the child is asked beside it.
        seconds: Expected; it is ended :data:`ROOM_SECONDS` later.
        kept_for_trial: Whether the run belongs to the trial; a remedy's run, with other settings, belongs to the study.
        knobs: Knob values in place of the trial's.
        environment: Process-start variables in place of the spec's.
        prefix: A command that starts the child's interpreter.
        run: The run's id where files were laid out for it before; None for a new one.
    """

    purpose: Purpose
    trial: TrialRecord
    answer: Mapping[str, Any]
    seconds: float
    kept_for_trial: bool = True
    knobs: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] | None = None
    prefix: Sequence[str] = ()
    run: str | None = None


@dataclass(frozen=True, kw_only=True)
class Done:
    """A longer run that has ended and whose end is not stored yet."""

    run: str
    end: RunEnd


def perform(bench: Bench, order: Order, told: Callable[[Event], str | None] = lambda _event: None) -> Done:
    """Stores the run, and runs it to its end. :func:`keep` then stores the end."""
    session = bench.session
    config = TrainingConfig.from_mapping(order.trial.config).with_values(**order.knobs)
    request = session.request(
        order.purpose,
        session.lane,
        config=config.to_mapping(),
        global_batch_size=config.micro_batch_size * config.accumulation_steps * session.spec.ranks,
        world_size=session.spec.ranks,
        answer=dict(order.answer),
        cap_memory=order.purpose == "soak",
    )
    request = request if order.run is None else replace(request, run=order.run)
    session.patiently(
        lambda: runs.start(
            session.database, id=request.run, study_id=session.study.id, purpose=order.purpose,
            trial_id=order.trial.id if order.kept_for_trial else None,
            attempt=1 + _earlier(bench, order), worker_id=session.worker_id,
        )
    )  # fmt: skip
    total = order.seconds + ROOM_SECONDS
    deadlines = Deadlines(trial_seconds=total, compile_seconds=session.spec.limits.compile_time_seconds)
    end = session.execute(
        session.lane, request, deadlines, told, environment=order.environment, prefix=order.prefix
    )  # fmt: skip
    return Done(run=request.run, end=end)


def _earlier(bench: Bench, order: Order) -> int:
    mine = order.trial.id if order.kept_for_trial else None
    return sum(run.trial_id == mine and run.purpose == order.purpose for run in bench.view.runs)


def keep(bench: Bench, done: Done, measurement: Mapping[str, Any], *, peak_memory_bytes: int | None = None) -> None:
    """Stores how the run ended, with what it found (empty where it failed)."""
    verdict, end = done.end.verdict, done.end
    bench.session.store(
        Result(
            run=done.run,
            outcome=verdict.outcome,
            fields={
                "cause": verdict.cause,
                "confidence": verdict.confidence,
                "evidence": {**end.evidence, "text": verdict.text, "advice": verdict.advice},
                "seconds": end.seconds,
                "measurement": dict(measurement),
                "peak_memory_bytes": peak_memory_bytes,
            },
        )
    )


def require_done(done: Done, what: str) -> None:
    """Turns an end without a result into its error.

    Raises:
        MachineError: The machine could not run it.
        TightfitError: It failed or was stopped.
    """
    verdict = done.end.verdict
    if verdict.outcome == "completed":
        return
    if verdict.outcome == "infra":
        raise MachineError(f"{what} cannot run here: {verdict.text}", cause=verdict.cause)
    if verdict.outcome == "cancelled":
        raise TightfitError(f"{what} was stopped before it had a result")
    raise TightfitError(f"{what} failed: {what_happened(done.end)}. {verdict.advice}".rstrip())


def say(bench: Bench, text: str) -> None:
    """Tells whoever watches."""
    bench.session.report(Notice(text=text))
