"""The batch as four numbers: micro-batch size x accumulation steps x ranks = global batch size. Pure."""

from __future__ import annotations

from objectives.config import divisors

NEAREST = 4


def batch_problem(*, global_batch_size: int, micro_batch_size: int, ranks: int = 1) -> tuple[str, str] | None:
    """Why these numbers cannot make the global batch, and the nearest that can; None when they do.

    Args:
        global_batch_size: Samples per optimizer step over all ranks.
        micro_batch_size: Samples per device and forward pass.
        ranks: Data-parallel ranks.
    """
    per_pass = micro_batch_size * ranks
    steps, rest = divmod(global_batch_size, per_pass)
    if not rest and steps:
        return None
    reason = (
        f"micro_batch_size {micro_batch_size} x accumulation_steps ? x ranks {ranks} = global_batch_size "
        f"{global_batch_size} has no whole answer: {global_batch_size} / ({micro_batch_size} x {ranks}) "
        f"= {global_batch_size / per_pass:.4g}"
    )
    return reason, f"{_sizes(global_batch_size, micro_batch_size, ranks)}{_globals(global_batch_size, per_pass)}"


def nearest_divisors(number: int, wanted: int) -> tuple[int, ...]:
    """Up to four divisors of a number nearest to a wanted size (by ratio), ascending."""
    near = sorted(divisors(number), key=lambda size: max(size, wanted) / min(size, wanted))
    return tuple(sorted(near[:NEAREST]))


def divisors_between(number: int, low: int, high: int) -> tuple[int, ...]:
    """The divisors of a number in ``[low, high]``, ascending."""
    return tuple(size for size in divisors(number) if low <= size <= high)


def powers_of_two_between(low: int, high: int) -> tuple[int, ...]:
    """The powers of two in ``[low, high]``, ascending."""
    return tuple(2**power for power in range(high.bit_length()) if low <= 2**power <= high)


def _sizes(global_batch_size: int, micro_batch_size: int, ranks: int) -> str:
    per_rank, rest = divmod(global_batch_size, ranks)
    if rest:
        return f"{global_batch_size} does not divide over {ranks} ranks at all; "
    sizes = ", ".join(map(str, nearest_divisors(per_rank, micro_batch_size)))
    return f"Use a micro_batch_size that divides {per_rank} (nearest: {sizes}), or "


def _globals(global_batch_size: int, per_pass: int) -> str:
    lower = global_batch_size // per_pass * per_pass
    sizes = " or ".join(str(size) for size in (lower, lower + per_pass) if size)
    return f"use a global_batch_size of {sizes}"
