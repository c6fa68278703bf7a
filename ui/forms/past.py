"""A stored study's spec written out again, to start another one from. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from objectives.contract import BUILT_IN, SCRIPT
from tuner import spec as specs
from tuner.spec.model import Limits, StudySpec
from tuner.spec.quantities import show_memory, show_seconds
from ui.forms.text import written

PLAIN = ("sampler", "seed", "max_grad_norm", "learning_rate", "device", "transfer")
"""Top-level keys that are written as they are, where they are not the default."""


def as_yaml(stored: Mapping[str, Any], name: str) -> str:
    """The spec as YAML that reads back to the same study under another name.

    Args:
        stored: As the store has it.
        name: Of the new study.
    """
    spec = specs.from_mapping(stored)
    values: dict[str, Any] = {"study": name, "objective": _objective(spec)}
    values |= {key: value for key in ("global_batch_size", "global_batch_tokens") if (value := getattr(spec, key))}
    values["baseline"] = dict(spec.baseline) or None
    values["search"] = {knob: list(choices) for knob, choices in spec.search.items()}
    values["limits"] = _limits(spec.limits) or None
    defaults = StudySpec(study="", objective=spec.objective)
    values |= {key: value for key in PLAIN if (value := getattr(spec, key)) != getattr(defaults, key)}
    values["environment"] = dict(spec.environment) or None
    return written({key: value for key, value in values.items() if value is not None})


def free_name(name: str, taken: Collection[str]) -> str:
    """``name-2``, or the next number that no study has."""
    stem = re.sub(r"-\d+$", "", name)
    number = 2
    while f"{stem}-{number}" in taken:
        number += 1
    return f"{stem}-{number}"


def _objective(spec: StudySpec) -> dict[str, Any]:
    kind, settings = spec.objective.kind, dict(spec.objective.settings)
    if kind in BUILT_IN or kind == SCRIPT:
        return {"kind": kind, **settings}
    return {"kind": kind, "settings": settings} if settings else {"kind": kind}


def _limits(limits: Limits) -> dict[str, Any]:
    default = Limits()
    changed = {
        each.name: value
        for each in fields(limits)
        if (value := getattr(limits, each.name)) != getattr(default, each.name)
    }
    return {name.removesuffix("_seconds"): _limit(name, value) for name, value in changed.items()}


def _limit(name: str, value: Any) -> Any:
    if name == "memory":
        return show_memory(value)
    if name == "target_half_width":
        return f"{value * 100:g}%"
    return show_seconds(value) if name.endswith("_seconds") else value
