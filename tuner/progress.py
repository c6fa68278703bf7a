"""What a study tells whoever watches it: plain facts, made by the worker and drawn by the command line or a screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class StudyStarted:
    """Work on a study begins, or goes on.

    Attributes:
        objective: The kind.
        device: The device's name.
        memory_limit_bytes: None when there is none.
        trials: Trials at most, the baseline included.
        trials_done: Trials already in the store.
        baseline: The baseline's whole configuration: other configurations are shown as what differs from it.
        seconds_left: Of the time limit; None without one.
    """

    study: str
    objective: str
    device: str
    sampler: str
    trials: int
    trials_done: int = 0
    memory_limit_bytes: int | None = None
    baseline: Mapping[str, Any] = field(default_factory=dict)
    seconds_left: float | None = None


@dataclass(frozen=True, kw_only=True)
class Preparing:
    """Work that is no trial yet, in one short sentence: tokenizing, asking what the machine can run."""

    text: str


@dataclass(frozen=True, kw_only=True)
class TrialStarted:
    """A run of a trial starts.

    Attributes:
        config: The whole configuration.
        purpose: ``search``, ``repeat`` or ``confirm``.
        predicted_peak_memory_bytes: None when nothing predicts it.
        seconds_left: Of the time limit; None without one.
    """

    number: int
    config: Mapping[str, Any]
    purpose: str = "search"
    run: str = ""
    predicted_peak_memory_bytes: int | None = None
    seconds_left: float | None = None


@dataclass(frozen=True, kw_only=True)
class StepSeen:
    """The running trial has come further.

    Attributes:
        steps: Optimizer steps (or micro-steps) so far.
        phase: What the run is doing: ``build``, ``worst_case``, ``warm_up``, ``measure``, ...
        rate: Units per second so far; None before anything was measured.
        unit: ``tokens_per_second`` or ``samples_per_second``.
        memory_bytes: Peak memory so far; None before it is known.
        limit_bytes: What it may be at most.
    """

    number: int
    steps: int
    phase: str = ""
    rate: float | None = None
    unit: str | None = None
    memory_bytes: int | None = None
    limit_bytes: int | None = None
    seconds_left: float | None = None


@dataclass(frozen=True, kw_only=True)
class TrialEnded:
    """A run of a trial ended.

    Attributes:
        cause: A slug of the reference; None for ``completed``.
        throughput: Units per second; None when nothing was measured; an upper bound when ``pruned``.
        seconds: Wall time of the run.
        message: Why, for a person; may be empty.
    """

    number: int
    outcome: str
    purpose: str = "search"
    run: str = ""
    cause: str | None = None
    throughput: float | None = None
    unit: str | None = None
    peak_memory_bytes: int | None = None
    seconds: float = 0.0
    message: str = ""
    seconds_left: float | None = None


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best so far.

    Attributes:
        throughput: Units per second.
        speedup: Over the baseline; None when the baseline has no measurement.
    """

    number: int
    throughput: float
    unit: str | None = None
    speedup: float | None = None


@dataclass(frozen=True, kw_only=True)
class Confirming:
    """The confirmation's next run: which round of how many, and of which trial."""

    round: int
    rounds: int
    number: int
    seconds_left: float | None = None


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something a person should know, in one sentence."""

    text: str


@dataclass(frozen=True, kw_only=True)
class StudyEnded:
    """Work on the study ended; ``stop_reason`` says why."""

    study: str
    status: str
    stop_reason: str | None = None


Progress = StudyStarted | Preparing | TrialStarted | StepSeen | TrialEnded | Best | Confirming | Notice | StudyEnded
OnProgress = Callable[[Progress], None]


def ignore(_progress: Progress) -> None:
    """Nobody watches."""
