"""One run from request to verdict: start the child, listen, keep its deadlines, judge its end. Knows no study."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objectives.trial.outcome import Ending, Verdict, classify
from tuner.work.ending import ending_from

if TYPE_CHECKING:
    from objectives.trial.protocol import Event, RunRequest
    from tuner.work.device_lock import DeviceLock
    from tuner.work.launcher import Launcher
    from tuner.work.trial_process import ProcessEnd, TrialProcess

POLL_SECONDS = 0.25
STOP_GRACE_SECONDS = 10.0
"""A child asked to stop finishes its block and sends what it has; after so long it is killed."""


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """How long a run may take.

    Attributes:
        trial_seconds: Everything but compilation.
        compile_seconds: Compilation.
        ends_at: ``time.monotonic()`` at which the study's own time is over; None for none.
    """

    trial_seconds: float
    compile_seconds: float
    ends_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """Everything a run left behind.

    Attributes:
        verdict: Its one outcome.
        ending: The facts the verdict was made from.
        measurement: The ``measurement`` event; empty without one.
        memory: The last ``memory`` event (the worst case's reading); empty without one.
        applied: The configuration read back; empty when the child did not come so far.
        answers: The ``answer`` events of a run that answers questions, in order.
        evidence: What is kept with the run: phase, chain, signal, who sent it, log head and tail, start-up.
        seconds: Wall time from request to end.
    """

    verdict: Verdict
    ending: Ending
    measurement: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    applied: Mapping[str, Any] = field(default_factory=dict)
    answers: tuple[Mapping[str, Any], ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


Watch = Callable[["Event"], str | None]
"""Sees every event of the run as it comes; a text asks the child to stop for that reason (``dominated``)."""


class Listener:
    """Collects a child's events and knows what its deadlines say at any moment."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._begun = time.monotonic()
        self._phase, self._phase_begun, self._compile_seconds = "import", self._begun, 0.0
        self.events: list[Event] = []

    def hear(self, event: Event) -> None:
        """Takes one event in."""
        self.events.append(event)
        if event.event == "phase":
            now = time.monotonic()
            if self._phase == "compile":
                self._compile_seconds += now - self._phase_begun
            self._phase, self._phase_begun = str(event.fields.get("phase")), now

    def overdue(self) -> str | None:
        """Why the run must be ended now, or None."""
        now = time.monotonic()
        if self._deadlines.ends_at is not None and now > self._deadlines.ends_at:
            return "study_time"
        compiling = now - self._phase_begun if self._phase == "compile" else 0.0
        if self._compile_seconds + compiling > self._deadlines.compile_seconds:
            return "compile_time"
        if now - self._begun - self._compile_seconds - compiling > self._deadlines.trial_seconds:
            return "trial_time"
        return None

    def last(self, name: str) -> Mapping[str, Any]:
        """The fields of the last event of that name; empty without one."""
        return next((e.fields for e in reversed(self.events) if e.event == name), {})

    def all(self, name: str) -> tuple[Mapping[str, Any], ...]:
        """The fields of every event of that name."""
        return tuple(e.fields for e in self.events if e.event == name)


def execute(
    launcher: Launcher,
    request: RunRequest,
    log_path: Path,
    deadlines: Deadlines,
    *,
    watch: Watch = lambda _event: None,
    cancelled: Callable[[], bool] = lambda: False,
    cold: bool = False,
    prefix: Sequence[str] = (),
    lock: DeviceLock | None = None,
) -> RunEnd:
    """Runs one child to its end and judges it. Always returns; whatever happened to the child is in the verdict.

    ``prefix`` is a command that starts the child's interpreter (a profiler); such a child starts cold.
    """
    begun = time.monotonic()
    listener = Listener(deadlines)
    process = launcher.start(request, log_path, cold=cold, prefix=prefix, lock=lock)
    _listen(process, listener, watch, cancelled)
    assert process.ended is not None
    ending = ending_from(process.ended, listener.events, request)
    return RunEnd(
        verdict=classify(ending),
        ending=ending,
        measurement=listener.last("measurement"),
        memory=listener.last("memory"),
        applied=listener.last("applied"),
        answers=listener.all("answer"),
        evidence=_evidence(process.ended, ending, listener),
        seconds=time.monotonic() - begun,
    )


def unable(error: Exception, seconds: float) -> RunEnd:
    """The end of a run whose machine could not run it: the device is busy, or no process can be started."""
    cause = getattr(error, "cause", None)
    verdict = Verdict(outcome="infra", cause=cause, text=str(error))
    return RunEnd(verdict=verdict, ending=Ending(), evidence={"phase": "start"}, seconds=seconds)


def _listen(process: TrialProcess, listener: Listener, watch: Watch, cancelled: Callable[[], bool]) -> None:
    stop_at, asked = 0.0, ""
    while process.ended is None:
        for event in process.poll(POLL_SECONDS):
            listener.hear(event)
            reason = watch(event)
            if reason and not asked:
                process.stop(reason)
                stop_at, asked = time.monotonic() + STOP_GRACE_SECONDS, reason
        if cancelled():
            process.kill("cancelled")
        elif why := listener.overdue():
            process.kill(why)
        elif asked and time.monotonic() > stop_at:
            process.kill(asked)


def _evidence(end: ProcessEnd, ending: Ending, listener: Listener) -> dict[str, Any]:
    failure = listener.last("failure")
    return {
        "phase": ending.phase,
        "exit_code": ending.exit_code,
        "signal": ending.signal,
        "killed_by_us": ending.killed_by_us,
        "kill_reason": ending.kill_reason,
        "chain": [{"cls": record.cls, "text": record.text} for record in ending.chain],
        "traceback": failure.get("traceback"),
        "log_head": end.log_head,
        "log_tail": end.log_tail,
        "warm_start": end.warm,
        "cold_reason": end.cold_reason,
        "start_seconds": end.start_seconds,
        "orphans_killed": end.orphans_killed,
        "tree_pss_bytes": end.tree_pss_bytes,
    }
