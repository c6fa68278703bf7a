"""What is wrong with a trainer's configuration by itself: unknown, misspelt, renamed, mistyped, contradictory. Pure.

Nothing is mended: each problem is a key with the reason.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

from tuner.export.known_keys import RENAMED, known_keys

Found = list[tuple[str, str]]
_MISSING = object()
SECTIONS = {
    "fp16": ("enabled", "auto_cast", "loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis",
             "consecutive_hysteresis", "min_loss_scale", "fp16_master_weights_and_grads"),
    "bf16": ("enabled", "immediate_grad_update", "check_grad_overflow", "bf16_master_weights_and_grads",
             "bf16_optimizer_states"),
    "torch_autocast": ("enabled", "dtype", "lower_precision_safe_modules"),
}  # fmt: skip
"""Keys of DeepSpeed's sections for precision."""
DEEPSPEED_BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")


def unknown(yours: Mapping[str, Any], name: str, also: frozenset[str] = frozenset()) -> Found:
    """Keys that a format does not know, with the nearest right one.

    Args:
        yours: The configuration as plain data.
        name: The format.
        also: Further keys that are right here (of a script's own arguments beside the trainer's).
    """
    known = known_keys(name)
    if not known:
        return []
    found = [
        (key, why_unknown(key, name, known | also)) for key in map(str, yours) if key not in known and key not in also
    ]
    return [*found, *_unknown_inside(yours)] if name == "deepspeed" else found


def _unknown_inside(yours: Mapping[str, Any]) -> Found:
    found: Found = []
    for section, keys in SECTIONS.items():
        inner = yours.get(section)
        wrong = [key for key in inner if key not in keys] if isinstance(inner, Mapping) else []
        found += [(f"{section}.{key}", nearest(key, keys)) for key in wrong]
    return found


def why_unknown(key: str, name: str, known: Iterable[str]) -> str:
    """What became of a key that a format does not know."""
    renamed = RENAMED.get(name, {}).get(key)
    return nearest(key, known) if renamed is None else f"no such key any more: its place was taken by {renamed}"


def nearest(key: str, known: Iterable[str]) -> str:
    """``unknown key``, with the nearest known one where one is near."""
    near = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.7)
    return f"unknown key; did you mean {near[0]!r}?" if near else "unknown key"


def mistyped(value: str, wanted: Any = _MISSING) -> str | None:
    """Why a text stands where a number or a boolean belongs; None where it may. ``auto`` is a word of its own."""
    if value.strip().lower() in ("true", "false"):
        return f"{value!r} is text, not a boolean: any text counts as true somewhere"
    if value.strip().lstrip("+-").replace(".", "", 1).isdigit():
        return f"{value!r} is text, not a number"
    if isinstance(wanted, (bool, int, float)) and value != "auto":
        return f"{value!r} is text where {type(wanted).__name__} belongs"
    return None


def of_trainer(yours: Mapping[str, Any]) -> Found:
    """Contradictions inside ``TrainingArguments``, whose constructor checks few of them."""
    found: Found = []
    if yours.get("fp16") and yours.get("bf16"):
        found.append(("fp16", "fp16 and bf16 are both on: at most one can be"))
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
    return [*found, *not_counts(yours, ("gradient_accumulation_steps", "per_device_train_batch_size"))]


def of_deepspeed(yours: Mapping[str, Any], ranks: int | None) -> Found:
    """Contradictions inside a DeepSpeed file.

    Args:
        yours: The file.
        ranks: Of the job; None when unknown: then the batch triangle holds if some number of ranks makes it whole.
    """
    on = [key for key in ("fp16", "bf16") if isinstance(yours.get(key), Mapping) and yours[key].get("enabled") is True]
    found: Found = [("fp16", "fp16 and bf16 are both enabled: at most one can be")] if len(on) == 2 else []
    total, micro, steps = (yours.get(key) for key in DEEPSPEED_BATCH)
    found += _triangle(total, micro, steps, ranks)
    if not any(key in yours for key in DEEPSPEED_BATCH[:2]):
        found.append(("train_batch_size", "neither the batch nor the micro-batch is given"))
    return [*found, *not_counts(yours, DEEPSPEED_BATCH)]


def _triangle(total: Any, micro: Any, steps: Any, ranks: int | None) -> Found:
    if not (is_count(total) and is_count(micro) and is_count(steps)):
        return []
    if ranks is None:
        whole = total % (micro * steps) == 0
        return [] if whole else [("train_batch_size", f"{total} is not {micro} x {steps} x any number of ranks")]
    right = total == micro * steps * ranks
    return [] if right else [("train_batch_size", f"{total} is not {micro} x {steps} x {ranks} ranks")]


def not_counts(yours: Mapping[str, Any], keys: tuple[str, ...]) -> Found:
    """Those keys whose value is no whole number above 0; a text is said by :func:`mistyped`."""
    bad = [key for key in keys if key in yours and not isinstance(yours[key], str) and not is_count(yours[key])]
    return [(key, f"{yours[key]!r} is not a whole number above 0") for key in bad]


def is_count(value: Any) -> TypeGuard[int]:
    """Whether it is a whole number above 0 (``true`` is none)."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
