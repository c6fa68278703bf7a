"""What is searched around an imported baseline. Pure.

Every range holds the baseline's own value. What changes the numerics beyond mixed precision, or doubles the time of a
trial, is offered as a comment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from objectives.config import KnobValue, divisors

WIDER, SMALLER = 8, 4
"""Micro-batches from a fourth of the baseline's to eight times it."""
PRECISIONS: Mapping[str, tuple[str, ...]] = {
    "fp32": ("fp32", "tf32", "bf16-mixed"),
    "tf32": ("tf32", "bf16-mixed"),
    "fp16-mixed": ("fp16-mixed", "bf16-mixed"),
    "bf16-mixed": ("bf16-mixed",),
    "bf16-true": ("bf16-mixed", "bf16-true"),
}
WORKERS = (0, 2, 4)
OFFERED = (
    "# compile: [off, default]        # often faster; every trial compiles first, so give the study more time",
    "# precision bf16-true            # parameters without a 32-bit copy: other numerics, list it if you mean it",
)


def ranges(
    knobs: Mapping[str, KnobValue], *, global_batch_size: int | None, ranks: int, packed: bool, on_cpu: bool
) -> dict[str, Any]:
    """The spec's ``search``, by knob.

    Args:
        knobs: The baseline.
        global_batch_size: Samples per optimizer step over all ranks; None when unknown.
        ranks: Data-parallel ranks of the job: micro-batches have to divide one rank's share.
        packed: Whether batches are packed, so that the global batch is in tokens.
        on_cpu: Whether the job trains on a CPU.
    """
    precision = str(knobs.get("precision", "fp32"))
    words = [each for each in PRECISIONS.get(precision, (precision,)) if not (on_cpu and each == "tf32")]
    plain = ("adamw", "adamw-foreach", "adamw-fused") if on_cpu else ("adamw-foreach", "adamw-fused")
    made: dict[str, Any] = {
        "micro_batch_size": _micro(knobs.get("micro_batch_size"), global_batch_size, ranks, packed=packed),
        "precision": words,
        "activation_checkpointing": ["none", "selective", "full"],
        "attention": _if_set(knobs, "attention", "sdpa"),
        "loss": ["full", "chunked"],
        "compile": _if_set(knobs, "compile", "off"),
        "optimizer": _with(plain, knobs.get("optimizer")),
        "loader_workers": sorted(_with(WORKERS, knobs.get("loader_workers"))),
        "prefetch_factor": sorted(_with((2,), knobs.get("prefetch_factor"))) if knobs.get("prefetch_factor") else None,
        "allocator": _if_set(knobs, "allocator", "default"),
    }  # fmt: skip
    return {name: values for name, values in made.items() if values is not None}


def _with(plain: Iterable[Any], given: Any) -> list[Any]:
    """These values and the baseline's own."""
    return list(dict.fromkeys([*plain, *([given] if given is not None else [])]))


def _if_set(knobs: Mapping[str, KnobValue], name: str, default: str) -> list[Any] | None:
    """The default and the baseline's own; None where that is the default."""
    return None if knobs.get(name, default) == default else [default, knobs[name]]


def _micro(given: Any, global_batch_size: int | None, ranks: int, *, packed: bool) -> Any:
    """A range; for several ranks the sizes that divide a rank's share, so that the answer fits the job again."""
    micro = given if isinstance(given, int) else 8
    low, high = max(1, micro // SMALLER), micro * WIDER
    if packed or global_batch_size is None:
        return {"low": low, "high": high}
    share = max(global_batch_size // ranks, 1)
    if ranks == 1:
        return {"low": low, "high": min(high, share)}
    return [size for size in divisors(share) if low <= size <= high] or list(divisors(share))
