"""JSON: the configuration with everything known about it, for programs."""

from __future__ import annotations

from tuner.export.environment import environment
from tuner.export.handover import Export, Handover, Ledger
from tuner.export.text import json_text

TITLE = "programs"
TARGET = "any JSON parser"
NAME = "configuration.json"


def write(handover: Handover) -> Export:
    """Everything in one document."""
    made = environment(handover)
    ledger = Ledger(handover.config)
    ledger.put(f"config in {NAME}", *ledger.untold())
    interval = handover.throughput_interval
    values = {
        "study": handover.study,
        "trial": handover.trial,
        "config": handover.config.to_mapping(),
        "world_size": handover.ranks,
        "global_batch_size": handover.global_batch_size,
        "global_batch_tokens": handover.global_batch_tokens,
        "max_grad_norm": handover.max_grad_norm,
        "objective": handover.objective,
        "device": handover.device,
        "device_kind": handover.device_kind,
        "throughput": handover.throughput,
        "throughput_unit": handover.throughput_unit,
        "throughput_interval": None if interval is None else list(interval),
        "confirmed": handover.confirmed,
        "measured_world_size": handover.measured_ranks,
        "peak_memory_bytes": handover.peak_memory_bytes,
        "memory_limit_bytes": handover.memory_limit_bytes,
        "headroom_bytes": handover.headroom_bytes,
        "found_under_cap": handover.capped,
        "longest_tokens": handover.longest_tokens,
        "environment": made,
        "versions": dict(handover.versions),
    }
    return Export(files={NAME: json_text(values)}, values=values, carried=ledger.carried, environment=made)
