"""A user's own configuration beside the winner's, key by key, and what is wrong with it by itself. Pure.

Nothing is mended: unknown, misspelt, renamed, contradictory and mistyped keys are listed, each with the reason.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeGuard

from tuner.export.handover import Handover
from tuner.export.known_keys import RENAMED, known_keys

State = Literal["same", "differs", "only_yours", "only_exported"]
_MISSING = object()
_SECTIONS = {
    "fp16": ("enabled", "auto_cast", "loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis",
             "consecutive_hysteresis", "min_loss_scale", "fp16_master_weights_and_grads"),
    "bf16": ("enabled", "immediate_grad_update", "check_grad_overflow", "bf16_master_weights_and_grads",
             "bf16_optimizer_states"),
    "torch_autocast": ("enabled", "dtype", "lower_precision_safe_modules"),
}  # fmt: skip
"""Keys of DeepSpeed's sections for precision."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One key: your value, the exported one (None where one is missing), and how they compare."""

    key: str
    yours: Any
    exported: Any
    state: State


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Every key of both, and the problems of yours: ``{"key", "reason"}``."""

    lines: tuple[Line, ...]
    problems: tuple[Mapping[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"keys": [asdict(line) for line in self.lines], "problems": [dict(each) for each in self.problems]}


def compare(yours: Mapping[str, Any], exported: Mapping[str, Any], name: str, handover: Handover) -> Comparison:
    """Your configuration beside a format's main file.

    Args:
        yours: Your file as plain data.
        exported: The export's ``values``.
        name: The format.
        handover: What was handed over: its global batch is what yours should come to.
    """
    mine, theirs = dict(_flat(yours)), dict(_flat(exported))
    lines = [_line(key, mine.get(key, _MISSING), theirs.get(key, _MISSING)) for key in dict.fromkeys([*theirs, *mine])]
    problems = [*_unknown(yours, name), *_types(mine, theirs), *_contradictions(yours, name, handover)]
    told = tuple({"key": key, "reason": reason} for key, reason in dict.fromkeys(problems))
    return Comparison(lines=tuple(lines), problems=told)


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        inner = isinstance(value, Mapping) and bool(value)
        found += _flat(value, f"{prefix}{key}.") if inner else [(f"{prefix}{key}", value)]
    return found


def _line(key: str, mine: Any, theirs: Any) -> Line:
    if mine is _MISSING:
        return Line(key=key, yours=None, exported=theirs, state="only_exported")
    if theirs is _MISSING:
        return Line(key=key, yours=mine, exported=None, state="only_yours")
    same = mine == theirs and isinstance(mine, bool) == isinstance(theirs, bool)
    return Line(key=key, yours=mine, exported=theirs, state="same" if same else "differs")


def _unknown(yours: Mapping[str, Any], name: str) -> list[tuple[str, str]]:
    known = known_keys(name)
    problems = [(key, _why_unknown(key, name, known)) for key in map(str, yours) if known and key not in known]
    if name == "deepspeed":
        for section, keys in _SECTIONS.items():
            inner = yours.get(section)
            wrong = [key for key in inner if key not in keys] if isinstance(inner, Mapping) else []
            problems += [(f"{section}.{key}", _nearest(key, keys)) for key in wrong]
    return problems


def _why_unknown(key: str, name: str, known: frozenset[str]) -> str:
    renamed = RENAMED.get(name, {}).get(key)
    return (
        _nearest(key, sorted(known)) if renamed is None else f"no such key any more: its place was taken by {renamed}"
    )


def _nearest(key: str, known: Any) -> str:
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.7)
    return f"unknown key; did you mean {near[0]!r}?" if near else "unknown key"


def _types(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (key, reason)
        for key, value in mine.items()
        if isinstance(value, str) and (reason := _mistyped(value, theirs.get(key, _MISSING))) is not None
    ]


def _mistyped(value: str, wanted: Any) -> str | None:
    """Text where a number or a boolean belongs. ``auto`` is a word of its own."""
    if value.strip().lower() in ("true", "false"):
        return f"{value!r} is text, not a boolean: any text counts as true somewhere"
    if value.strip().lstrip("+-").replace(".", "", 1).isdigit():
        return f"{value!r} is text, not a number"
    if isinstance(wanted, (bool, int, float)) and value != "auto":
        return f"{value!r} is text where {type(wanted).__name__} belongs"
    return None


def _contradictions(yours: Mapping[str, Any], name: str, handover: Handover) -> list[tuple[str, str]]:
    if name == "hf-trainer":
        return [*_hf(yours), *_product(yours, handover, "per_device_train_batch_size", "gradient_accumulation_steps")]
    if name == "deepspeed":
        micro, steps = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
        return [*_deepspeed(yours, handover), *_product(yours, handover, micro, steps)]
    if name == "lightning":
        return _counts(yours, ("accumulate_grad_batches",))
    return []


def _hf(yours: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = (
        [("fp16", "fp16 and bf16 are both on: at most one can be")] if yours.get("fp16") and yours.get("bf16") else []
    )
    workers = yours.get("dataloader_num_workers", 0)
    needing = ("dataloader_persistent_workers", "dataloader_prefetch_factor")
    found += [(key, "needs dataloader_num_workers above 0") for key in needing if yours.get(key) and not workers]
    old, new = yours.get("gradient_checkpointing"), yours.get("activation_checkpointing")
    if old is not None and new is not None and old != new:
        found.append(("gradient_checkpointing", "activation_checkpointing is its newer name and says something else"))
    options = yours.get("activation_checkpointing_kwargs") or yours.get("gradient_checkpointing_kwargs") or {}
    if isinstance(options, Mapping) and options.get("use_reentrant"):
        found.append(("use_reentrant", "the reentrant kind loses gradients where no input asks for one: write false"))
    if yours.get("auto_find_batch_size"):
        found.append(("auto_find_batch_size", "halves the batch in silence, and with it the global batch"))
    return [*found, *_counts(yours, ("gradient_accumulation_steps", "per_device_train_batch_size"))]


def _deepspeed(yours: Mapping[str, Any], handover: Handover) -> list[tuple[str, str]]:
    on = [key for key in ("fp16", "bf16") if isinstance(yours.get(key), Mapping) and yours[key].get("enabled") is True]
    found = [("fp16", "fp16 and bf16 are both enabled: at most one can be")] if len(on) == 2 else []
    keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    total, micro, steps = (yours.get(key) for key in keys)
    if _is_count(total) and _is_count(micro) and _is_count(steps) and total != micro * steps * handover.ranks:
        found.append(("train_batch_size", f"{total} is not {micro} x {steps} x {handover.ranks} ranks"))
    if not any(key in yours for key in keys[:2]):
        found.append(("train_batch_size", "neither the batch nor the micro-batch is given"))
    return [*found, *_counts(yours, keys)]


def _counts(yours: Mapping[str, Any], keys: tuple[str, ...]) -> list[tuple[str, str]]:
    bad = [key for key in keys if key in yours and not isinstance(yours[key], str) and not _is_count(yours[key])]
    return [(key, f"{yours[key]!r} is not a whole number above 0") for key in bad]


def _product(yours: Mapping[str, Any], handover: Handover, micro: str, steps: str) -> list[tuple[str, str]]:
    size, times = yours.get(micro), yours.get(steps, 1)
    if not (_is_count(size) and _is_count(times)):
        return []
    found, wanted = size * times * handover.ranks, handover.global_batch_size
    if found == wanted:
        return []
    return [(micro, f"{size} x {times} x {handover.ranks} ranks are {found} samples; the study's batch is {wanted}")]


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
