"""One configuration of a replay table. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

Knobs = Mapping[str, Any]
"""Value by knob, accumulation left out: it follows from the micro-batch and the global batch."""

MEASURED = ("completed", "pruned")


def key_of(config: Knobs) -> str:
    """The identity of a configuration: its knobs in canonical JSON."""
    return json.dumps(config, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, kw_only=True)
class Run:
    """One measured run of a row.

    Attributes:
        throughput: Units per second, above 0.
        seconds: What it cost; None: as the row says.
    """

    throughput: float
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One configuration and what it did.

    Attributes:
        config: Its knobs.
        outcome: As recorded. A completed one whose peak is over the table's limit counts as ``device_oom``.
        throughput: Units per second, the mean over its runs: the truth that hits are judged by; None when it failed.
        standard_error: Of one window's mean, from inside it, units per second; None when absent.
        peak_bytes: Measured peak; None when absent.
        predicted_bytes: Raw prediction made before any run; None when absent.
        seconds: What one run of it costs.
        setup_seconds: Of these, before the first step; None when absent.
        compile_seconds: Of these, for compiling; None when absent.
        step_seconds: Optimizer steps of one run, seconds each; empty when absent.
        runs: Its repeated runs; empty when absent.
        data_stall_share: Share of a step spent waiting for data, 0 to 1; None when absent.
        cut: Whether the outcome was derived from the limit instead of measured under it.
    """

    config: Knobs
    outcome: str
    throughput: float | None = None
    standard_error: float | None = None
    peak_bytes: int | None = None
    predicted_bytes: int | None = None
    seconds: float = 0.0
    setup_seconds: float | None = None
    compile_seconds: float | None = None
    step_seconds: tuple[float, ...] = ()
    runs: tuple[Run, ...] = ()
    data_stall_share: float | None = None
    cut: bool = False

    @cached_property
    def key(self) -> str:
        """See :func:`key_of`."""
        return key_of(self.config)

    @cached_property
    def units_per_step(self) -> float:
        """Real units of one recorded optimizer step; 0 without recorded steps."""
        recorded = self.runs[0].throughput if self.runs else self.throughput or 0.0
        return recorded * fmean(self.step_seconds) if self.step_seconds else 0.0

    def over(self, limit_bytes: int | None) -> bool:
        """Whether it ran, but needs more than the limit: a misfit under this cut."""
        known = self.peak_bytes is not None and limit_bytes is not None
        return self.outcome in MEASURED and known and (self.peak_bytes or 0) > (limit_bytes or 0)
