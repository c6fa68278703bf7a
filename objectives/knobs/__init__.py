"""All knobs, in the order they are applied. A new one is written in its family's file and added to ``KNOBS``.

Importing this package loads no torch: the spec reader, the search and the screens use it too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from objectives.config import KnobValue, TrainingConfig
from objectives.knobs.allocator import ALLOCATOR
from objectives.knobs.attention import ATTENTION
from objectives.knobs.batch import MICRO_BATCH_SIZE
from objectives.knobs.checkpointing import CHECKPOINTING
from objectives.knobs.compile import COMPILE
from objectives.knobs.data import BATCHING, TOKENS
from objectives.knobs.knob import Choice, Facts, Knob, facts_from_mapping, facts_to_mapping
from objectives.knobs.loader import LOADER_WORKERS, PIN_MEMORY, PREFETCH_FACTOR
from objectives.knobs.loss import LOSS
from objectives.knobs.memory_format import MEMORY_FORMAT
from objectives.knobs.optimizer import OPTIMIZER
from objectives.knobs.precision import PRECISION

if TYPE_CHECKING:
    from objectives.trial.setup import Setup

__all__ = [
    "KNOBS",
    "Choice",
    "Facts",
    "Knob",
    "apply_all",
    "canonical",
    "clashes",
    "config_key",
    "differences",
    "environment",
    "facts_from_mapping",
    "facts_to_mapping",
    "knob",
    "legal_values",
    "offered_values",
    "read_back",
]

KNOBS: tuple[Knob, ...] = (
    ALLOCATOR,  # acts through the environment, before the device is touched
    PRECISION,  # casts the parameters: before the optimizer takes them
    ATTENTION,
    LOSS,
    CHECKPOINTING,
    MEMORY_FORMAT,  # moves the parameters: before the optimizer takes them
    TOKENS,
    BATCHING,
    COMPILE,  # notes the options; the training loop compiles when all else is in place
    OPTIMIZER,
    LOADER_WORKERS,
    PREFETCH_FACTOR,
    PIN_MEMORY,
    MICRO_BATCH_SIZE,
)

_BY_NAME = {item.name: item for item in KNOBS}


def knob(name: str) -> Knob:
    """The knob of that name.

    Raises:
        KeyError: There is none; the message lists those there are.
    """
    if name not in _BY_NAME:
        raise KeyError(f"unknown knob {name!r}: known are {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


def legal_values(
    item: Knob, facts: Facts, values: Iterable[KnobValue] | None = None
) -> tuple[tuple[KnobValue, ...], dict[KnobValue, str]]:
    """Which values of a knob can run here, and for the others why not.

    Args:
        item: The knob.
        facts: What this machine, these libraries and this workload can do.
        values: Those asked about; None for all choices (for an integer knob: its default alone).
    """
    asked = tuple(values) if values is not None else item.values or (item.default,)
    reasons = {value: _refusal(item, value, facts) for value in asked}
    legal = tuple(value for value in asked if reasons[value] is None)
    return legal, {value: reason for value, reason in reasons.items() if reason is not None}


def offered_values(item: Knob, facts: Facts) -> tuple[KnobValue, ...]:
    """The legal values that belong to the space when the spec names none."""
    return tuple(value for value in legal_values(item, facts)[0] if item.offer(value, facts))


def _refusal(item: Knob, value: KnobValue, facts: Facts) -> str | None:
    outside = _outside(item, value)
    if outside is not None:
        return outside
    if item.needs is not None and value != item.default and item.needs not in facts.workload_methods:
        return f"needs the workload's {item.needs}(), which it does not have"
    return item.refuse(value, facts) or facts.unsupported.get(f"{item.name}={value}")


def _outside(item: Knob, value: KnobValue) -> str | None:
    if item.kind == "integer":
        whole = isinstance(value, int) and not isinstance(value, bool)
        inside = whole and item.low <= int(value) <= item.high
        return None if inside else f"{item.name} is a whole number from {item.low} to {item.high}"
    known = any(value == choice and type(value) is type(choice) for choice in item.values)
    return None if known else f"{item.name} is one of {', '.join(map(str, item.values))}"


def clashes(config: TrainingConfig, facts: Facts) -> tuple[str, ...]:
    """Reasons why legal values cannot run together here; empty when they can."""
    return tuple(reason for item in KNOBS if (reason := item.clash(config, facts)) is not None)


def canonical(config: TrainingConfig) -> TrainingConfig:
    """The same training with every knob that does not act set to its default, so that equal runs look equal."""
    idle = {item.name: item.default for item in KNOBS if _value(item, config) != item.default and not item.acts(config)}
    return config.with_values(**idle) if idle else config


def config_key(config: TrainingConfig) -> str:
    """A short name (16 hex digits) for the canonical knob values.

    Stable: a knob added later changes no name while it is at its default. Accumulation is left out: it follows from
    the micro-batch and the study's global batch.
    """
    values = canonical(config).knobs()
    told = {name: value for name, value in values.items() if value != knob(name).default}
    text = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def environment(config: TrainingConfig) -> dict[str, str]:
    """Variables to set in the child before the device is touched."""
    made: dict[str, str] = {}
    for item in KNOBS:
        made |= item.environment(_value(item, config))
    return made


def apply_all(setup: Setup) -> None:
    """Applies every knob of ``setup.config``, in order."""
    for item in KNOBS:
        if item.apply is not None:
            item.apply(setup, _value(item, setup.config))


def read_back(setup: Setup) -> dict[str, KnobValue]:
    """What is really in effect, by knob; those that cannot be read, or not yet, are left out."""
    found = {item.name: item.read_back(setup) for item in KNOBS if item.read_back is not None}
    return {name: value for name, value in found.items() if value is not None}


def differences(setup: Setup) -> list[dict[str, Any]]:
    """Knobs whose effect is not what was asked: ``[{"knob", "asked", "found"}]``; without those that do not act."""
    found: Mapping[str, KnobValue] = read_back(setup)
    return [
        {"knob": item.name, "asked": asked, "found": found[item.name]}
        for item in KNOBS
        if item.name in found and item.acts(setup.config) and (asked := _value(item, setup.config)) != found[item.name]
    ]


def _value(item: Knob, config: TrainingConfig) -> KnobValue:
    value: KnobValue = getattr(config, item.name)
    return value
