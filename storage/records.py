"""What the store returns: frozen, plain, detached from any session. Times are UTC and timezone-aware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypedDict

StudyStatus = Literal["queued", "running", "paused", "finished", "failed", "cancelled"]
WorkerStatus = Literal["idle", "working", "draining", "quarantined", "gone"]
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
        version: Rises with every change of the study, one of its trials or one of its runs (for caches).
        priority: Higher is served first.
        needs: What a worker must have: ``device_kind`` (``cpu``, ``cuda``), ``memory_bytes`` (least device memory).
        submitted_at: When it was handed to the workers; None for a study that only ``tuner run`` works on.
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
    priority: int = 0
    needs: Json = field(default_factory=dict)
    submitted_at: datetime | None = None


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
        worker_id: The worker whose trial it is while it has no outcome; None where nobody's, or of ``tuner run``.
        changed: The study's version at its last change.
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
    worker_id: str | None = None
    changed: int = 0


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
        worker_id: The worker that started it; None for ``tuner run``.
        heartbeat_at: When that worker last named it, by the database's clock; None for ``tuner run``.
        progress: How far it has come, as :func:`storage.runs.note_progress` keeps it: ``phase``, ``steps`` so far,
            ``units_per_second`` in that phase, ``memory_bytes`` (peak; both None before they are known), ``at`` (when
            it was noted, ISO 8601 in UTC). None before anything was noted and once it has an outcome.
        changed: The study's version at its last change; a heartbeat or progress is none.
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
    worker_id: str | None = None
    heartbeat_at: datetime | None = None
    progress: Json | None = None
    changed: int = 0


@dataclass(frozen=True, kw_only=True)
class WorkerRecord:
    """One process that owns one device. Its times are by the database's clock.

    Attributes:
        id: A UUID as text, made by the worker; a worker that starts again has another.
        device_name: What a front may not mix, as in :attr:`StudyRecord.device`.
        device_uuid: Empty for a CPU.
        threads: CPU threads a child may compute with.
        cores: Numbers of the CPU cores that are its own on its host; empty where it shares all.
        facts: Versions, and what its operator allows.
        reason: Why it is quarantined or ended; None while there is nothing to say.
        infra_in_a_row: Runs that ended as ``infra`` on its device since the last that did not.
        lease_seconds: It counts as lost when it has said nothing for so long.
        steady_since: Since when it has never been silent for half its lease.
        ended_at: When it went or was declared lost; None while it lives.
    """

    id: str
    host: str
    pid: int
    device_kind: str
    device_name: str
    device_uuid: str = ""
    total_memory_bytes: int = 0
    threads: int = 1
    cores: tuple[int, ...] = ()
    facts: Json = field(default_factory=dict)
    status: WorkerStatus
    study_id: int | None = None
    reason: str | None = None
    infra_in_a_row: int = 0
    lease_seconds: float
    heartbeat_at: datetime
    steady_since: datetime
    started_at: datetime
    ended_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Beat:
    """What a worker hears at its heartbeat.

    Attributes:
        worker: Its row; ``gone`` when it has been declared lost: it must end its runs and register anew.
        study_status: Of the study it works on; None without one, or when that was deleted.
        study_version: Of that study; None likewise.
        taken_away: Those of the runs it named that have an outcome already or are no longer stored: end their children.
    """

    worker: WorkerRecord
    study_status: StudyStatus | None = None
    study_version: int | None = None
    taken_away: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """What a recovery declared lost: ids.

    Attributes:
        workers: Now ``gone`` (a quarantined one stays that).
        runs: Now ``infra/worker_lost``.
        trials: Without an owner now, to be taken over for their next attempt.
    """

    workers: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    trials: tuple[int, ...] = ()


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
