"""Which configurations certainly need more memory than one that did not fit, and which need least. Pure.

Only what holds by construction is used: two configurations that differ in nothing but the micro-batch size (and in
knobs of the loader, which live in host memory) need more with the larger micro-batch, *if* the larger one accumulates
whenever the smaller one did. Accumulation is not memory-neutral: gradients stay allocated between the micro-batches, so
a single large micro-batch can fit where a smaller accumulated one does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from objectives.config import TrainingConfig
from storage.records import TrialRecord

HOST_KNOBS = frozenset({"loader_workers", "prefetch_factor", "pin_memory", "tokens"})
"""Knobs that do not change what the device must hold."""

SMALLEST_FIRST: Mapping[str, tuple[Any, ...]] = {
    "activation_checkpointing": ("full", "selective", "none"),
    "precision": ("bf16-true", "bf16-mixed", "fp16-mixed", "tf32", "fp32"),
    "loss": ("chunked", "full"),
    "optimizer": ("adamw-8bit", "adamw-fused", "adamw", "adamw-foreach"),
    "attention": ("flash_attention_2", "sdpa", "flex_attention", "eager"),
    "compile": ("off", "default", "reduce-overhead", "max-autotune"),
}
"""Values by how little memory they usually need: a guess for where to look first, never a proof."""

Family = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class MisfitMemory:
    """What certainly does not fit, learned from finished trials.

    Attributes:
        smallest: The smallest misfitting micro-batch by family and by whether it accumulates.
    """

    smallest: Mapping[tuple[Family, bool], int] = field(default_factory=dict)

    def refuses(self, config: TrainingConfig) -> bool:
        """Whether the configuration certainly needs at least as much as one that did not fit."""
        accumulates = (False, True) if config.accumulation_steps > 1 else (False,)
        known = (self.smallest.get((family_of(config), each)) for each in accumulates)
        return any(size is not None and config.micro_batch_size >= size for size in known)


def learn_misfits(trials: Iterable[TrialRecord], limit_bytes: int | None) -> MisfitMemory:
    """Collects the certain misfits: a certain ``device_oom``, or a measured peak over the limit."""
    smallest: dict[tuple[Family, bool], int] = {}
    for trial in trials:
        if not certain_misfit(trial, limit_bytes):
            continue
        config = TrainingConfig.from_mapping(trial.config)
        key = (family_of(config), config.accumulation_steps > 1)
        smallest[key] = min(config.micro_batch_size, smallest.get(key, config.micro_batch_size))
    return MisfitMemory(smallest=smallest)


def certain_misfit(trial: TrialRecord, limit_bytes: int | None) -> bool:
    """Whether this trial proves that its configuration does not fit."""
    if trial.outcome == "device_oom":
        return trial.confidence == "certain" and not outgrown(trial, limit_bytes)
    measured = trial.outcome in ("completed", "pruned") and trial.peak_memory_bytes is not None
    return measured and limit_bytes is not None and (trial.peak_memory_bytes or 0) > limit_bytes


def outgrown(trial: TrialRecord, limit_bytes: int | None) -> bool:
    """Whether the trial ran out of memory under a smaller limit than today's: it may fit now, and may be tried."""
    if trial.outcome != "device_oom":
        return False
    then = trial.evidence.get("memory_limit_bytes")
    return isinstance(then, int) and limit_bytes is not None and then < limit_bytes


def family_of(config: TrainingConfig | Mapping[str, Any]) -> Family:
    """Everything that decides device memory but the micro-batch size."""
    left_out = HOST_KNOBS | {"micro_batch_size", "accumulation_steps"}
    values = config if isinstance(config, Mapping) else config.knobs()
    return tuple((name, value) for name, value in values.items() if name not in left_out)


def frugality(config: TrainingConfig) -> tuple[int, ...]:
    """Sort key: configurations that usually need least memory first."""
    values = config.knobs()
    ranks = tuple(_rank(order, values[name]) for name, order in SMALLEST_FIRST.items())
    return (config.micro_batch_size, *ranks)


def _rank(order: tuple[Any, ...], value: Any) -> int:
    return order.index(value) if value in order else len(order)
