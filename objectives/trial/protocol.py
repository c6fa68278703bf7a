"""What travels between a worker and a child: one request down, JSON-line events up, ``stop`` and keepalives down.

Torch-free. Every line is one JSON object of standard JSON (no NaN, no infinity: :func:`encode` writes null for them).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from objectives.contract import ObjectiveReference

VERSION = 1

Purpose = Literal[
    "search", "repeat", "confirm", "soak", "profile", "verify", "trainer", "estimate", "loader_capacity", "capability"
]
Phase = Literal["import", "build", "load", "worst_case", "compile", "warm_up", "measure", "eval", "done"]
EventName = Literal["started", "phase", "applied", "step", "memory", "measurement", "answer", "failure", "finished"]


@dataclass(frozen=True, kw_only=True)
class WindowPlan:
    """How long a run measures.

    Attributes:
        min_seconds: The window is at least this long.
        max_seconds: And at most this long (the step in progress is finished).
        target_half_width: Stop between the two when the window's own 95 % half-width, relative, is this small; 0 never.
        warm_load_seconds: Extra load before the window, so that clocks and caches settle (trial 0 of a study).
    """

    min_seconds: float = 4.0
    max_seconds: float = 8.0
    target_half_width: float = 0.01
    warm_load_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """Everything a child needs to know. JSON both ways through :meth:`to_json` and :meth:`from_json`.

    Attributes:
        run: The run's id, for logs and for finding processes that belong to it.
        config: Values of :class:`objectives.config.TrainingConfig`; empty for runs that have none (``capability``).
        global_batch_size: Samples (or packed rows) per optimizer step over all ranks.
        device: ``"cpu"`` or ``"cuda"``; a CUDA device is pinned by ``device_uuid``.
        memory_limit_bytes: What ``peak_memory_bytes`` may be at most; None for no limit.
        cap_memory: Whether the limit is enforced on the child (the allocator's fraction, or its data segment's limit).
        threads: CPU threads for compute in the child.
        keepalive_seconds: A child that hears nothing from its worker for so long ends itself.
        environment: Variables set in the child before the device is touched.
        answer: For ``capability`` runs: what is asked, e.g. ``{"knobs": {name: [values]}}``.
    """

    run: str
    purpose: Purpose
    objective: ObjectiveReference
    config: Mapping[str, Any] = field(default_factory=dict)
    global_batch_size: int = 1
    device: Literal["cpu", "cuda"] = "cpu"
    device_uuid: str = ""
    seed: int = 0
    max_grad_norm: float = 1.0
    learning_rate: float = 1e-4
    memory_limit_bytes: int | None = None
    cap_memory: bool = True
    threads: int = 1
    rank: int = 0
    world_size: int = 1
    window: WindowPlan = field(default_factory=WindowPlan)
    keepalive_seconds: float = 60.0
    environment: Mapping[str, str] = field(default_factory=dict)
    answer: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> RunRequest:
        """The inverse of :meth:`to_json`."""
        values = json.loads(text)
        values["objective"] = ObjectiveReference(**values["objective"])
        values["window"] = WindowPlan(**values["window"])
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event as read by the worker. ``fields`` holds what is special to its name."""

    event: EventName
    seq: int
    monotonic_seconds: float
    rank: int = 0
    world_size: int = 1
    fields: Mapping[str, Any] = field(default_factory=dict)


def clean(value: Any) -> Any:
    """The value as standard JSON: NaN and infinity become None; NUL and lone surrogates leave strings."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {str(clean(key)): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [clean(item) for item in value]
    return value


def encode(event: Event) -> bytes:
    """The event as one line, newline included."""
    head = {"v": VERSION, "seq": event.seq, "monotonic_seconds": event.monotonic_seconds, "rank": event.rank}
    body = {**head, "world_size": event.world_size, "event": event.event, **clean(event.fields)}
    return json.dumps(body, allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> Event:
    """The inverse of :func:`encode`.

    Raises:
        ValueError: Not one of our events (another version, not JSON).
    """
    body = json.loads(line)
    if not isinstance(body, dict) or body.pop("v", None) != VERSION:
        raise ValueError(f"not an event of version {VERSION}: {line[:200]!r}")
    known = {name: body.pop(name) for name in ("event", "seq", "monotonic_seconds", "rank", "world_size")}
    return Event(**known, fields=body)


class EventSender:
    """The child's end: numbers and times the events of one rank and writes each as one line."""

    def __init__(self, write: Callable[[bytes], None], *, rank: int = 0, world_size: int = 1) -> None:
        self._write = write
        self._seq = 0
        self._rank = rank
        self._world_size = world_size

    def send(self, event: EventName, **fields: Any) -> None:
        """Writes one event."""
        made = Event(
            event=event,
            seq=self._seq,
            monotonic_seconds=time.monotonic(),
            rank=self._rank,
            world_size=self._world_size,
            fields=fields,
        )
        self._seq += 1
        self._write(encode(made))
