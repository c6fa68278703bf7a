"""What Optuna is told of a trial's outcome: one pure function, shared by the samplers and the projection."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

CONSTRAINT = "fits"
"""Name of the one constraint: bytes over the limit, divided by the limit; 0 or less is feasible.

One only: Optuna's GP sampler builds its matrix by position and mixes the columns of several.
"""
MEASURED = frozenset({"completed", "pruned"})
TEACHES = frozenset({"device_oom", "numerical", "unsupported", "timeout"})
"""Failures that belong to the configuration. Told as FAIL, samplers would propose them again and again."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """One trial in Optuna's words.

    Attributes:
        state: Name of Optuna's trial state.
        values: Throughput in units per second (to be maximised) and peak memory in bytes (minimised); None for FAIL.
        fits: The constraint; None for FAIL.
    """

    state: Literal["COMPLETE", "FAIL"]
    values: tuple[float, float] | None = None
    fits: float | None = None


FAILED = Told(state="FAIL")


def told(outcome: str, throughput: float | None, peak: float | None, limit: float | None) -> Told:
    """What to tell of one trial.

    Args:
        outcome: The trial's outcome.
        throughput: Units per second; an upper bound when ``pruned``. None where none was measured.
        peak: Peak memory in bytes; None where none was measured.
        limit: The memory limit in bytes; None while it is not known, which only a trial that teaches nothing can meet.

    Returns:
        COMPLETE for what was measured (throughput, peak, how far over the limit) and for failures that teach (0, the
        limit, +1); FAIL for everything else, and where a figure is missing that must be told.
    """
    if limit is None or not limit > 0:
        return FAILED
    if outcome in TEACHES:
        return Told(state="COMPLETE", values=(0.0, float(limit)), fits=1.0)
    if outcome not in MEASURED or throughput is None or peak is None:
        return FAILED
    if not (math.isfinite(throughput) and math.isfinite(peak)):
        return FAILED
    return Told(state="COMPLETE", values=(float(throughput), float(peak)), fits=(peak - limit) / limit)
