"""The measurement of a script's run, from its ledger: the same fields as a child's own training loop sends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from objectives.measure.nvidia import used_bytes
from objectives.measure.reading import MemoryReading, over_ranks
from objectives.measure.window import summarise

if TYPE_CHECKING:
    from objectives.script.ledger import Ledger, Rank
    from objectives.trial.protocol import RunRequest


def foreign_bytes(device_uuid: str) -> int | None:
    """Memory others hold on the device before the script starts; None on a CPU or where nobody says."""
    return used_bytes(device_uuid) if device_uuid else None


def memory_over_ranks(ranks: Sequence[Rank], device: str) -> MemoryReading:
    """What a device must have free: the worst rank's peak (each has a GPU); on a CPU, which all share, their sum."""
    names = MemoryReading.__dataclass_fields__
    readings = [MemoryReading(**{k: v for k, v in rank.memory.items() if k in names}) for rank in ranks]
    worst = over_ranks(readings)
    peaks = [reading.peak_memory_bytes for reading in readings]
    if device == "cuda" or any(peak is None for peak in peaks):
        return worst
    return replace(worst, peak_memory_bytes=sum(peak or 0 for peak in peaks))


def measurement(ledger: Ledger, request: RunRequest) -> dict[str, Any]:
    """The window's numbers. ``throughput`` is in samples per second over all ranks; tokens stand beside it."""
    window = ledger.window
    seconds = math.fsum(step.seconds for step in window)
    waits = math.fsum(step.wait_seconds for step in window)
    tokens = [step.tokens for step in window if step.tokens is not None and step.applied]
    return {
        "throughput_unit": "samples_per_second",
        **summarise([step.block() for step in window]).to_mapping(),
        "tokens_per_second": sum(tokens) / seconds if len(tokens) == len(window) else None,
        "step_seconds": [step.seconds for step in window],
        "micro_steps_in_block": window[0].micro_steps,
        "composed": False,
        "skipped_steps": sum(not step.applied for step in window),
        "warm_up_steps": len(ledger.warm_up),
        "evaluated_steps": ledger.evaluated,
        "first_step": window[0].index,
        "last_step": window[-1].index,
        "first_loss": ledger.loss[0] if ledger.loss else None,
        "last_loss": ledger.loss[-1] if ledger.loss else None,
        "window_seconds": seconds,
        "warm_up_seconds": math.fsum(step.seconds for step in ledger.warm_up),
        "worst_case_seconds": math.fsum(step.seconds for step in ledger.worst_case),
        "data_stall_share": min(waits / seconds, 1.0),
        "flops_per_unit": None,
        "energy_joules": None,
        "memory": memory_over_ranks(ledger.trained, request.device).to_mapping(),
        "hook_share": ledger.hook_share(),
        "ranks": ledger.rank_figures(),
    }
