"""What was asked of a script beside what was read back from it. Pure. What cannot be seen is not compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from objectives.config import TrainingConfig

SAME: Mapping[str, frozenset[tuple[str, str]]] = {
    "activation_checkpointing": frozenset({("full", "recomputed"), ("selective", "recomputed")}),
    "optimizer": frozenset({("adamw-foreach", "adamw")}),
}
"""Words of which reading back cannot tell more: (asked, found)."""


def differences(
    config: TrainingConfig, carried: frozenset[str], found: Mapping[str, Any], *, ranks: int, ranks_found: int
) -> list[dict[str, object]]:
    """``[{"knob", "asked", "found"}]``; empty when the script does what was asked.

    Args:
        config: What was asked.
        carried: The knobs the template hands to the script; the batch counts in any case.
        found: What a rank read back.
        ranks: Ranks the batch was divided for.
        ranks_found: Ranks that trained together.
    """
    made = []
    if ranks != ranks_found:
        made.append({"knob": "ranks", "asked": ranks, "found": ranks_found})
    for name in dict.fromkeys(("micro_batch_size", "accumulation_steps", *sorted(carried))):
        asked, seen = getattr(config, name), found.get(name)
        if seen is not None and not _same(name, asked, seen) and _acts(name, config):
            made.append({"knob": name, "asked": asked, "found": seen})
    return made


def _same(name: str, asked: Any, found: Any) -> bool:
    return bool(asked == found) or (asked, found) in SAME.get(name, ())


def _acts(name: str, config: TrainingConfig) -> bool:
    """Prefetching acts with workers only; pinning on a device only, where torch says it did nothing."""
    return name != "prefetch_factor" or config.loader_workers > 0


def read_config(found: Mapping[str, Any]) -> dict[str, Any]:
    """What was read back, as the ``applied`` event carries it."""
    micro = found.get("micro_batch_size")
    whole = {"micro_batch_size": int(micro)} if isinstance(micro, float) and micro.is_integer() else {}
    return {**found, **whole}
