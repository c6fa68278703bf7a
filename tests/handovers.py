"""Handovers for the tests of export: one whole, and the matrix precision x accumulation x checkpointing x workers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from objectives.config import TrainingConfig
from tuner.export.handover import Handover

GIB = 2**30
PRECISIONS = ("fp32", "tf32", "fp16-mixed", "bf16-mixed", "bf16-true")
CHECKPOINTING = ("none", "selective", "full")


def handover_of(device_kind: str = "cuda", *, ranks: int = 1, config: dict[str, Any] | None = None, **values: Any):
    """A handover whose global batch is exact for its configuration unless ``values`` say otherwise."""
    chosen = TrainingConfig(
        **{"micro_batch_size": 4, "accumulation_steps": 4, "precision": "bf16-mixed", **(config or {})}
    )
    made = {
        "study": "llama", "trial": 3, "device": "NVIDIA H100", "threads": 4, "confirmed": True,
        "global_batch_size": chosen.micro_batch_size * chosen.accumulation_steps * ranks,
        "throughput": 1234.5, "throughput_unit": "tokens_per_second", "throughput_interval": (1200.0, 1269.0),
        "peak_memory_bytes": 60 * GIB, "memory_limit_bytes": 73 * GIB, "total_memory_bytes": 80 * GIB,
        "longest_tokens": 4096, "versions": {"torch": "2.13.0", "transformers": "5.24.0"}, **values,
    }  # fmt: skip
    return Handover(config=chosen, device_kind=device_kind, ranks=ranks, **made)


def matrix(device_kind: str) -> Iterator[Handover]:
    """Every precision x accumulation {1, 4} x checkpointing x workers {0, 4}; those with workers compiled too."""
    for precision, steps, mode, workers in product(PRECISIONS, (1, 4), CHECKPOINTING, (0, 4)):
        if precision == "tf32" and device_kind == "cpu":
            continue
        config = {
            "precision": precision, "accumulation_steps": steps, "activation_checkpointing": mode,
            "loader_workers": workers, "compile": "default" if workers else "off",
        }  # fmt: skip
        yield handover_of(device_kind, config=config)
