"""What makes a spec this study and no other, and a spec as JSON for the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from objectives.contract import ObjectiveReference
from tuner.spec.model import Limits, MemoryLimit, StudySpec

_MISSING = object()


def identity(spec: StudySpec) -> dict[str, Any]:
    """The part of a spec that makes it this study: objective, batch, space, baseline, seed, clipping, environment.

    Limits, sampler, device and folders may change between two runs of a study. The order in which keys and values were
    written means nothing. JSON.
    """
    return {
        "objective": {"kind": spec.objective.kind, "settings": dict(spec.objective.settings)},
        "global_batch_size": spec.global_batch_size,
        "global_batch_tokens": spec.global_batch_tokens,
        "search": {name: list(values) for name, values in spec.search.items()},
        "baseline": dict(spec.baseline),
        "seed": spec.seed,
        "max_grad_norm": spec.max_grad_norm,
        "environment": dict(spec.environment),
    }


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What differs between two identities, one line a key, for a person; empty when they are the same study.

    Args:
        old: The identity in the store.
        new: The identity of the spec at hand.
    """
    before, after = _flat(old), _flat(new)
    keys = [*before, *(key for key in after if key not in before)]
    return [
        f"{key}: {_shown(before.get(key, _MISSING))} in the store, {_shown(after.get(key, _MISSING))} in the spec"
        for key in keys
        if not _same(before.get(key, _MISSING), after.get(key, _MISSING))
    ]


def to_mapping(spec: StudySpec) -> dict[str, Any]:
    """The spec as JSON: what the store keeps. :func:`from_mapping` reads it back."""
    values = asdict(spec)
    values["search"] = {name: list(choices) for name, choices in spec.search.items()}
    return values


def from_mapping(values: Mapping[str, Any]) -> StudySpec:
    """The inverse of :func:`to_mapping`. Keys that an older version did not write take their defaults.

    Raises:
        KeyError: Not such a mapping.
    """
    limits = dict(values.get("limits", {}))
    if "memory" in limits:
        limits["memory"] = MemoryLimit(**_known(MemoryLimit, limits["memory"]))
    made = {
        **_known(StudySpec, values),
        "objective": ObjectiveReference(**_known(ObjectiveReference, values["objective"])),
        "search": {name: tuple(choices) for name, choices in values.get("search", {}).items()},
        "limits": Limits(**_known(Limits, limits)),
    }
    return StudySpec(**{"study": values["study"], **made})


def _known(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in values.items() if name in names}


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found.update(_flat(value, f"{prefix}{key}."))
        elif value is not None:
            found[f"{prefix}{key}"] = value
    return found


def _same(old: Any, new: Any) -> bool:
    """Equal in value and, in lists (the space), in type: 64 is not 64.0. ``true`` is never 1."""
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        return len(old) == len(new) and all(type(a) is type(b) and _same(a, b) for a, b in zip(old, new, strict=True))
    return bool(old == new) and isinstance(old, bool) == isinstance(new, bool)


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "nothing"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
