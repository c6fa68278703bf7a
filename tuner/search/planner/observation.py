"""What the engine is told of one configuration that has been run, and of a loader or an earlier study. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from objectives.config import KnobValue

Config = Mapping[str, KnobValue]
"""One configuration: value by knob; ``accumulation_steps`` may stand among them and is derived, not searched."""

MEASURED = frozenset({"completed", "pruned"})
CHOICE_FAILS = frozenset({"numerical", "unsupported", "timeout"})
"""Outcomes that speak against the configuration's choices."""
LOADER_FAILS = frozenset({"host_oom", "shm"})
"""Outcomes that speak against its loader's settings."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One configuration's result.

    Attributes:
        config: What ran.
        outcome: A word of DESIGN.md: ``completed``, ``pruned``, ``device_oom``, ``numerical``, ...
        throughput: Units per second; None where nothing was measured.
        relative_standard_error: Of the throughput, run-to-run spread included where it is known; None when unknown.
        is_bound: Whether the throughput is only an upper bound (a run stopped early as dominated).
        peak_memory_bytes: The measured peak; None where there is none.
        seconds: Device time it took, all of it.
        setup_seconds: Of these, before the first step; None when unknown.
        compile_seconds: Of these, for compilation; None when unknown.
        data_stall_share: Share of the step spent waiting for data, 0 to 1; None when unknown.
        runs: Runs the throughput is the mean of.
        certain: Whether an out-of-memory was the configuration's own beyond doubt; a probable one teaches itself only.
    """

    config: Config
    outcome: str
    throughput: float | None = None
    relative_standard_error: float | None = None
    is_bound: bool = False
    peak_memory_bytes: int | None = None
    seconds: float = 0.0
    setup_seconds: float | None = None
    compile_seconds: float | None = None
    data_stall_share: float | None = None
    runs: int = 1
    certain: bool = True

    @property
    def measured(self) -> bool:
        """Whether it brought a throughput that can be learned from."""
        return self.outcome in MEASURED and self.throughput is not None and self.throughput > 0

    def fits(self, limit_bytes: float | None) -> bool:
        """Whether it completed inside the limit (None: no limit; an unknown peak of a completed run fits)."""
        if self.outcome != "completed" or self.is_bound or not self.measured:
            return False
        return limit_bytes is None or self.peak_memory_bytes is None or self.peak_memory_bytes <= limit_bytes

    def misfits(self, limit_bytes: float | None) -> bool:
        """Whether it proves that its configuration does not fit."""
        if self.outcome == "device_oom":
            return self.certain
        peak = self.peak_memory_bytes if self.outcome in MEASURED else None
        return peak is not None and limit_bytes is not None and peak > limit_bytes


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """What an earlier study taught.

    Attributes:
        name: For people.
        seen: Its results.
        similarity: How far its knobs' effects carry over, 0 (not at all) to 1 (the same device, model and lengths).
            Its level never does: every study has its own.
    """

    name: str
    seen: Sequence[Seen]
    similarity: float = 0.9


@dataclass(frozen=True, kw_only=True)
class LoaderCapacity:
    """The pipeline's capacity, measured alone.

    Attributes:
        settings: The loader's knobs (``loader_workers``, ``prefetch_factor``, ``pin_memory``, ``tokens``, ...); knobs
            left out may have any value.
        throughput: Units per second it can deliver.
        relative_standard_error: Of that figure.
    """

    settings: Config
    throughput: float
    relative_standard_error: float = 0.05
