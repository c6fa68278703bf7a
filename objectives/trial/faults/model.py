"""The facts a verdict is made from, and the verdict itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal[
    "completed", "pruned", "device_oom", "numerical", "unsupported", "timeout", "host_oom", "shm", "crashed", "infra",
    "cancelled",
]  # fmt: skip
Confidence = Literal["certain", "probable"]


@dataclass(frozen=True, kw_only=True)
class ExceptionRecord:
    """One exception of a chain, outermost first: class name with module, names of all its base classes, and text."""

    cls: str
    bases: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Everything known about how a run ended. An unknown fact is None, never a guess.

    Attributes:
        exit_code: Exit status when the child exited by itself.
        signal: Number of the signal that ended it.
        killed_by_us: Whether we sent that signal (or asked it to stop).
        kill_reason: Why we did: ``trial_time``, ``compile_time``, ``dominated``, ``cancelled``, ...
        phase: The last phase the child reported.
        applied_steps: Optimizer steps applied so far; None also for runs that take none (``capability``).
        chain: The final exception with its whole cause and context chain, outermost first; empty without one.
        finished: Whether the child sent its ``finished`` event (its result is complete).
        log_tail: End of the child's output.
        device: ``"cpu"`` or ``"cuda"``.
        memory_used_share: Share of the device's memory (or of the cap) in use at the end.
        cap_set: Whether the child's own cap was on.
        cap_reached: Whether the child's own cap was reached.
        kernel_kills_rose: Whether the kernel's out-of-memory kill counter rose during the run.
        launcher_lost: Whether the template that had forked the child died.
        loader_workers: Loader workers of the configuration.
        micro_batch_size: Of the configuration.
        ended_seconds: When the end was seen, by the worker's monotonic clock; orders the ranks of a run.
    """

    exit_code: int | None = None
    signal: int | None = None
    killed_by_us: bool = False
    kill_reason: str | None = None
    phase: str | None = None
    applied_steps: int | None = None
    chain: tuple[ExceptionRecord, ...] = ()
    finished: bool = False
    log_tail: str = ""
    device: str | None = None
    memory_used_share: float | None = None
    cap_set: bool | None = None
    cap_reached: bool | None = None
    kernel_kills_rose: bool | None = None
    launcher_lost: bool = False
    loader_workers: int | None = None
    micro_batch_size: int | None = None
    ended_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of a run, with a cause (a slug of the list in the reference) and what to do about it.

    Attributes:
        cause: None where the outcome says it all.
        advice: One sentence for the person; empty where there is nothing to do.
        numbers: What the fault's text says, in bytes (``requested_bytes``, ``free_bytes``, ...), and ``near_cap``
            (True) after a signal near the child's own cap.
        text: The words that decided: an exception's class and text, or a fatal line of the log; shortened.
        phase: The phase it ended in; an out-of-memory in ``eval`` says nothing about training.
    """

    outcome: Outcome
    cause: str | None = None
    confidence: Confidence = "certain"
    advice: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    phase: str | None = None


@dataclass(frozen=True, kw_only=True)
class Retry:
    """How a run is tried again.

    Attributes:
        how: ``same``: the same run once more. ``raised_cap``: with its cap raised by ``cap_factor``, so that the
            measured peak decides. ``fewer_workers``: as a new trial with fewer loader workers. ``elsewhere``: on
            another device or worker where there is one.
    """

    how: Literal["same", "raised_cap", "fewer_workers", "elsewhere"]
    cap_factor: float = 1.0
