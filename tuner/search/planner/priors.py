"""What is believed of each knob before any run: means and spreads of effects, in natural logarithms. One table. Pure.

Sources, all of 2026-12-01: `precision`, `activation_checkpointing` on a CPU: PROTOTYPES.md's table (AMX: bf16 2.4x
fp32; full 1.05 to 1.2x slower, selective 1.01 to 1.18x); full against selective on a GPU: torchtitan PR 97 (4.91 s to
4.55 s) and the recomputation of one forward in three (1.33x at most); everything else is a round figure with a spread
wide enough to be wrong by a factor, which the first runs correct.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from objectives.config import KnobValue

MICRO_BATCH = "micro_batch_size"
ACCUMULATION = "accumulation_steps"
LOADER_KNOBS = ("loader_workers", "prefetch_factor", "pin_memory", "tokens")
"""Knobs of the data pipeline: they set its capacity, and hold nothing on the device."""


@dataclass(frozen=True, kw_only=True)
class KnobPrior:
    """One knob's effect on a logarithm.

    Attributes:
        means: Expected effect by value; 0 for the others.
        spread: Standard deviation of each value's effect.
        couples: How strongly it interacts with other knobs: the spread of a pair's own effect is
            :data:`PAIR_SPREAD` x sqrt(couples of one x couples of the other).
        octaves: For ordered integers, the distance in factors of two over which effects stay alike.
        kin: Values that act through the same thing (the matrix units; a compiler), ...
        kinship: ... and the correlation of their effects.
    """

    means: Mapping[KnobValue, float] = field(default_factory=dict)
    spread: float = 0.2
    couples: float = 0.4
    octaves: float = 2.0
    kin: frozenset[KnobValue] = frozenset()
    kinship: float = 0.9


PAIR_SPREAD = 0.10
"""Spread of the joint effect of two strongly coupled values, before runs say better."""
FAMILY_SPREAD = 0.03
"""Spread of what a whole combination of knobs has of its own."""
OWN_SPREAD = 0.01
"""Spread of what a single configuration has of its own."""

UNKNOWN = KnobPrior(spread=0.25, couples=0.5)
"""A knob that nobody has met before."""

FLOOR_SAMPLES: Mapping[str, tuple[float, float]] = {"cuda": (1.5, 0.35), "cpu": (0.6, 0.35)}
"""Launch-bound floor over slope, in samples, and the spread of the resulting effect in log throughput: time per sample
goes as 1 + floor/micro-batch. A GPU's floor is worth a sample or two of a small model, a CPU has hardly any."""

CACHE: Mapping[str, tuple[float, float]] = {"cuda": (64.0, 0.0), "cpu": (8.0, 0.05)}
"""Micro-batch from which on activations outgrow the caches, and what each doubling beyond costs in log throughput."""

_HALF = frozenset[KnobValue]({"fp16-mixed", "bf16-mixed", "bf16-true"})
_COMPILED = frozenset[KnobValue]({"default", "reduce-overhead", "max-autotune"})
_FUSED_ATTENTION = frozenset[KnobValue]({"sdpa", "flash_attention_2"})
_RECOMPUTED = frozenset[KnobValue]({"selective", "full"})

_SHARED: Mapping[str, KnobPrior] = {
    "batching": KnobPrior(means={"length-grouped": 0.25, "packed": 0.35}, spread=0.3, couples=0.5),
    "allocator": KnobPrior(spread=0.02, couples=0.05),
    "pin_memory": KnobPrior(means={True: 0.01}, spread=0.02, couples=0.05),
    "prefetch_factor": KnobPrior(spread=0.02, couples=0.05),
    "loader_workers": KnobPrior(spread=0.05, couples=0.1),
    "tokens": KnobPrior(means={"cached": 0.02}, spread=0.04, couples=0.1),
}

RATE: Mapping[str, Mapping[str, KnobPrior]] = {
    "cuda": {
        **_SHARED,
        MICRO_BATCH: KnobPrior(spread=0.12, couples=0.6, octaves=2.5),
        "precision": KnobPrior(
            means={"tf32": 0.6, "fp16-mixed": 0.8, "bf16-mixed": 0.85, "bf16-true": 1.0},
            spread=0.3,
            couples=0.6,
            kin=_HALF,
            kinship=0.95,
        ),
        "activation_checkpointing": KnobPrior(
            means={"selective": -0.1, "full": -0.25}, spread=0.08, couples=0.25, kin=_RECOMPUTED, kinship=0.5
        ),
        "attention": KnobPrior(
            means={"eager": -0.15, "flash_attention_2": 0.03, "flex_attention": -0.1}, spread=0.12, kin=_FUSED_ATTENTION
        ),
        "loss": KnobPrior(means={"chunked": -0.04}, spread=0.06, couples=0.25),
        "compile": KnobPrior(
            means={"default": 0.15, "reduce-overhead": 0.18, "max-autotune": 0.2},
            spread=0.15,
            couples=0.5,
            kin=_COMPILED,
            kinship=0.8,
        ),
        "optimizer": KnobPrior(means={"adamw-fused": 0.03, "adamw-8bit": -0.02}, spread=0.05, couples=0.2),
        "memory_format": KnobPrior(means={"channels_last": 0.15}, spread=0.2, couples=0.5),
    },
    "cpu": {
        **_SHARED,
        MICRO_BATCH: KnobPrior(spread=0.12, couples=1.0, octaves=1.5),
        "precision": KnobPrior(
            means={"fp16-mixed": -0.5, "bf16-mixed": 0.5, "bf16-true": 0.6},
            spread=0.4,
            couples=1.0,
            kin=_HALF,
            kinship=0.95,
        ),
        "activation_checkpointing": KnobPrior(
            means={"selective": -0.12, "full": -0.22}, spread=0.1, couples=0.25, kin=_RECOMPUTED, kinship=0.5
        ),
        "attention": KnobPrior(spread=0.2),  # short sequences: either way
        "loss": KnobPrior(means={"chunked": -0.03}, spread=0.08, couples=0.3),
        "compile": KnobPrior(
            means={"default": 0.1, "max-autotune": 0.1}, spread=0.15, couples=0.5, kin=_COMPILED, kinship=0.8
        ),
        "optimizer": KnobPrior(means={"adamw-fused": 0.04, "adamw-foreach": 0.0}, spread=0.08, couples=0.3),
        "memory_format": KnobPrior(means={"channels_last": 0.1}, spread=0.2, couples=0.5),
    },
}
"""Effects on log throughput (of compute alone) by kind of device."""

LOADER_AS_KNOB = 4.0
"""Factor on the loader knobs' spreads while no run says how long it waited for data."""

PEAK: Mapping[str, KnobPrior] = {
    MICRO_BATCH: KnobPrior(spread=0.25, couples=0.5, octaves=3.0),
    "precision": KnobPrior(means={"fp16-mixed": -0.1, "bf16-mixed": -0.1, "bf16-true": -0.5}, spread=0.15, couples=0.3),
    "activation_checkpointing": KnobPrior(means={"selective": -0.2, "full": -0.4}, spread=0.2, couples=0.6),
    "attention": KnobPrior(means={"eager": 0.15}, spread=0.12, couples=0.4),
    "loss": KnobPrior(means={"chunked": -0.1}, spread=0.1, couples=0.4),
    "compile": KnobPrior(means={"default": -0.05}, spread=0.15, couples=0.3),
    "optimizer": KnobPrior(means={"adamw-8bit": -0.15}, spread=0.1, couples=0.3),
    "batching": KnobPrior(spread=0.1),
    "memory_format": KnobPrior(spread=0.05, couples=0.2),
    "allocator": KnobPrior(spread=0.03, couples=0.1),
}
"""Effects on the logarithm of the peak, for spaces without predictions; the micro-batch adds its line."""
PEAK_FIXED_SAMPLES = 6.0
"""Parameters, gradients and optimizer state are worth the activations of so many samples: peak ~ this + micro-batch."""
PEAK_UNKNOWN = KnobPrior(spread=0.2, couples=0.5)

CAPACITY: Mapping[str, KnobPrior] = {
    "loader_workers": KnobPrior(spread=0.5, couples=0.2, octaves=1.5),
    "tokens": KnobPrior(means={"cached": 0.7}, spread=0.6, couples=0.2),
    "prefetch_factor": KnobPrior(spread=0.08, couples=0.1),
    "pin_memory": KnobPrior(spread=0.08, couples=0.1),
}
"""Effects on the logarithm of the pipeline's capacity; workers add the logarithm of their number (at least 1)."""

COMPILE_SECONDS: Mapping[str, Mapping[str, float]] = {
    "cuda": {"default": 40.0, "reduce-overhead": 50.0, "max-autotune": 180.0},
    "cpu": {"default": 60.0, "reduce-overhead": 60.0, "max-autotune": 120.0},
}
"""What compilation adds to a run before one has shown it (PROTOTYPES.md: 50 to 80 s for two layers on a CPU)."""

NOISE: Mapping[str, float] = {"cpu": 0.03, "cuda": 0.01}
"""Relative spread between runs of one configuration."""
