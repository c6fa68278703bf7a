"""Which peaks must be predicted so that a whole space is known: knobs that cannot change one are left out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from objectives.config import TrainingConfig
from objectives.knobs import config_key
from tuner.search.memory_order import HOST_KNOBS

WITHOUT_TENSORS = HOST_KNOBS | {"allocator"}
"""Knobs that no tensor on the device depends on: the loader's live in host memory, the allocator's place tensors."""

Prediction = Mapping[str, Any]
"""As an ``estimate`` child answers: ``peak_memory_bytes``, ``categories``, ``operator_at_peak``, ``note``, ``wide``."""


def representative(config: TrainingConfig) -> TrainingConfig:
    """The configuration that is predicted in this one's place: the same with those knobs at their defaults."""
    default = TrainingConfig()
    return config.with_values(**{name: getattr(default, name) for name in WITHOUT_TENSORS})


def to_ask(
    configs: Iterable[TrainingConfig], known: Mapping[str, Prediction], *, most: int | None = None
) -> list[TrainingConfig]:
    """Representatives of the configurations that nothing is known of, each once, in their order.

    Args:
        configs: The wanted ones, the most wanted first.
        known: Predictions by configuration key.
        most: So many at most; None for all.
    """
    found: dict[str, TrainingConfig] = {}
    for config in configs:
        if config_key(config) in known:
            continue
        if most is not None and len(found) >= most:
            break
        asked = representative(config)
        found.setdefault(config_key(asked), asked)
    return list(found.values())


def spread_out(configs: Iterable[TrainingConfig], answers: Mapping[str, Prediction]) -> dict[str, Prediction]:
    """The answers about representatives as predictions of the configurations themselves, by configuration key."""
    pairs = ((config_key(config), config_key(representative(config))) for config in configs)
    return {key: answers[asked] for key, asked in pairs if asked in answers}


def uncertain(known: Mapping[str, Prediction]) -> frozenset[str]:
    """Keys of the predictions that call themselves uncertain."""
    return frozenset(key for key, each in known.items() if each.get("wide"))


def predicted_peaks(known: Mapping[str, Prediction]) -> dict[str, int]:
    """Raw predicted peaks in bytes by configuration key, of those that could be predicted."""
    return {
        key: int(each["peak_memory_bytes"]) for key, each in known.items() if each.get("peak_memory_bytes") is not None
    }
