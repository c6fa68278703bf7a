"""Trials in columns for the tests of figures: as the store hands them over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ui.points import Points, points_of

GIB = 2**30
KNOBS = {"micro_batch_size": 1, "precision": "fp32", "attention": "sdpa", "accumulation_steps": 8}


def row(number: int, throughput: float | None = None, peak_gib: float | None = None, **values: Any) -> tuple[Any, ...]:
    config: Mapping[str, Any] = {**KNOBS, **values.pop("config", {})}
    made = {
        "id": 100 + number, "number": number, "config": config, "outcome": "completed", "cause": None,
        "throughput": throughput, "throughput_unit": "tokens_per_second", "throughput_standard_error": 1.0,
        "confirmed": False, "confirmed_throughput": None,
        "peak_memory_bytes": None if peak_gib is None else int(peak_gib * GIB), "predicted_peak_memory_bytes": None,
        "seconds": 10.0, "source": "auto", **values,
    }  # fmt: skip
    return tuple(made[name] for name in Points.COLUMNS)


def some() -> Points:
    """Baseline, two on the front, one dominated, one over a limit of 8 GiB, one out of memory, one running."""
    return points_of(
        [
            row(0, 100.0, 2.0),
            row(1, 300.0, 6.0, config={"precision": "bf16-mixed", "micro_batch_size": 4}),
            row(2, 200.0, 4.0, config={"precision": "bf16-mixed", "micro_batch_size": 2}),
            row(3, 150.0, 5.0, config={"micro_batch_size": 2}, predicted_peak_memory_bytes=int(4.5 * GIB)),
            row(4, 400.0, 9.0, config={"micro_batch_size": 8}),
            row(5, outcome="device_oom", cause="cap", predicted_peak_memory_bytes=12 * GIB),
            row(6, outcome=None, predicted_peak_memory_bytes=3 * GIB),
        ]
    )
