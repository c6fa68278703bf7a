"""What the store returns: frozen, plain, detached from any session. Times are UTC and timezone-aware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypedDict

StudyStatus = Literal["queued", "running", "paused", "finished", "failed", "cancelled"]
Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """One study.

    Attributes:
        spec: The validated spec as JSON (what the worker runs from).
        identity: The part of the spec that makes it this study and no other (objective, batch, space, baseline).
        facts: What preparation and the capability child found: hardware, software, data, refused choices.
        device: Name of the device kind its measurements are from; None before the first.
        memory_limit_bytes: The limit in bytes on that device; None before the first run.
        stop_reason: Why it ended, for people; None while it has not.
        seconds: Wall time spent working on it, over all sessions.
        version: Rises with every change of the study or one of its trials (for caches).
    """

    id: int
    name: str
    status: StudyStatus
    spec: Json
    identity: Json
    facts: Json = field(default_factory=dict)
    device: str | None = None
    memory_limit_bytes: int | None = None
    stop_reason: str | None = None
    seconds: float = 0.0
    version: int = 0
    created_at: datetime
    finished_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """One trial: the wide row everything that reads looks at.

    Attributes:
        number: 0 is the baseline; contiguous within a study.
        config: The whole configuration, ``accumulation_steps`` included.
        config_key: Hash of the canonical configuration; equal keys are the same configuration.
        source: Who proposed it: ``baseline`` or a sampler's name.
        outcome: None while it runs.
        throughput: Units per second, the mean over its search and repeat windows; an upper bound when ``pruned``.
        throughput_standard_error: Standard error of that mean from inside the windows alone, in units per second.
        windows: Measured windows that entered the mean.
        confirmed_throughput: Mean over its confirmation runs; None when it has none.
        metrics: Everything else measured, as the last ``measurement`` event said it.
        evidence: Why it ended so: phase, exception chain or signal, who sent it, head and tail of the log.
        seconds: Wall time of all its runs.
    """

    id: int
    study_id: int
    number: int
    config: Json
    config_key: str
    source: str
    outcome: str | None = None
    cause: str | None = None
    confidence: str | None = None
    throughput: float | None = None
    throughput_unit: str | None = None
    throughput_standard_error: float | None = None
    windows: int = 0
    confirmed: bool = False
    confirmed_throughput: float | None = None
    peak_memory_bytes: int | None = None
    predicted_peak_memory_bytes: int | None = None
    metrics: Json = field(default_factory=dict)
    evidence: Json = field(default_factory=dict)
    seconds: float = 0.0
    created_at: datetime
    finished_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One child process.

    Attributes:
        id: A UUID as text, made by the worker before the child starts.
        trial_id: None for runs of a study or a device.
        attempt: 1 for the first run of that purpose; a repeat after a lost machine or a doubtful outcome counts on.
        measurement: The ``measurement`` event's fields; empty without one.
        hardware: Device, driver, software versions, threads, clocks: what the numbers belong to.
        step_seconds: The measured window's composed optimizer-step times, in seconds.
        evidence: As in :class:`TrialRecord`, of this run.
    """

    id: str
    study_id: int
    trial_id: int | None = None
    purpose: str
    attempt: int = 1
    outcome: str | None = None
    cause: str | None = None
    confidence: str | None = None
    throughput: float | None = None
    peak_memory_bytes: int | None = None
    measurement: Json = field(default_factory=dict)
    hardware: Json = field(default_factory=dict)
    step_seconds: tuple[float, ...] = ()
    evidence: Json = field(default_factory=dict)
    seconds: float = 0.0
    started_at: datetime
    finished_at: datetime | None = None


class TrialEnd(TypedDict, total=False):
    """What may be stored when a trial ends, all but its outcome. Meaning and units as in :class:`TrialRecord`."""

    cause: str | None
    confidence: str | None
    throughput: float | None
    throughput_unit: str | None
    throughput_standard_error: float | None
    windows: int
    peak_memory_bytes: int | None
    predicted_peak_memory_bytes: int | None
    metrics: Json
    evidence: Json
    seconds: float


class TrialUpdate(TypedDict, total=False):
    """What may change after a trial's end (further windows, the confirmation) or before it (the prediction)."""

    throughput: float | None
    throughput_unit: str | None
    throughput_standard_error: float | None
    windows: int
    confirmed: bool
    confirmed_throughput: float | None
    peak_memory_bytes: int | None
    predicted_peak_memory_bytes: int | None
    metrics: Json
    evidence: Json
    seconds: float


class RunEnd(TypedDict, total=False):
    """What may be stored when a run ends, all but its outcome. Meaning and units as in :class:`RunRecord`.

    ``hardware`` replaces what the run started with.
    """

    cause: str | None
    confidence: str | None
    throughput: float | None
    peak_memory_bytes: int | None
    measurement: Json
    hardware: Json
    step_seconds: Sequence[float]
    evidence: Json
    seconds: float
