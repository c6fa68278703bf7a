"""A spec after validation: plain frozen data. Made by ``tuner.spec.read``; pydantic stays at that border."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from objectives.config import KnobValue
from objectives.contract import SCRIPT, ObjectiveReference
from objectives.script.launchers import ranks_of


@dataclass(frozen=True, kw_only=True)
class MemoryLimit:
    """A share of the device's total memory (0 to 1) or a size in bytes; exactly one of them is set."""

    share: float | None = None
    size_bytes: int | None = None

    def bytes_of(self, total_bytes: int) -> int:
        """The limit on a device with so much memory. Never more than the device has."""
        if self.size_bytes is not None:
            return min(self.size_bytes, total_bytes)
        return int(total_bytes * (self.share if self.share is not None else 1.0))


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When a study ends and how long one run may take.

    Attributes:
        memory: What ``peak_memory_bytes`` may be at most.
        trials: Trials at most, the baseline included.
        time_seconds: Wall time at most; a third is kept for the confirmation. None for no limit.
        trial_time_seconds: One run at most, without compile time.
        compile_time_seconds: Compilation at most.
        window_seconds: The measuring window of a search run: at least half of it, at most all of it.
        target_half_width: A window stops early at this relative 95 % half-width; 0 always uses the whole window.
    """

    memory: MemoryLimit = field(default_factory=lambda: MemoryLimit(share=0.92))
    trials: int = 40
    time_seconds: float | None = None
    trial_time_seconds: float = 120.0
    compile_time_seconds: float = 300.0
    window_seconds: float = 8.0
    target_half_width: float = 0.01


@dataclass(frozen=True, kw_only=True)
class StudySpec:
    """One study as asked for.

    Attributes:
        study: The study's name, unique in the store.
        objective: What is trained.
        global_batch_size: Samples per optimizer step; None when ``global_batch_tokens`` is given.
        global_batch_tokens: Real tokens per optimizer step, on average; only then may batches be packed.
        baseline: Knob values of the configuration the user would have used; the others take the trainer's defaults.
        search: Legal values to search, by knob, in a fixed order. Micro-batch sizes are already the divisors.
        environment: Process-start variables every run gets.
        transfer: Whether the search starts from what earlier studies on the same device taught.
        device: ``auto``, ``cpu`` or ``cuda``.
        sampler: A name of ``tuner.search.samplers.SAMPLERS``.
    """

    study: str
    objective: ObjectiveReference
    global_batch_size: int | None = None
    global_batch_tokens: int | None = None
    baseline: Mapping[str, KnobValue] = field(default_factory=dict)
    search: Mapping[str, tuple[KnobValue, ...]] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    sampler: str = "auto"
    seed: int = 0
    max_grad_norm: float = 1.0
    learning_rate: float = 1e-4
    environment: Mapping[str, str] = field(default_factory=dict)
    device: str = "auto"
    transfer: bool = True

    @property
    def ranks(self) -> int:
        """Data-parallel ranks of one run: 1, or what a script's launcher starts."""
        return ranks_of(self.objective.settings) if self.objective.kind == SCRIPT else 1
