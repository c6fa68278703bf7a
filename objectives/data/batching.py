"""Which samples make which micro-batch. Pure: plain numbers in, lists of sample indices out.

The global batch ``k`` always holds samples ``[k*G, (k+1)*G)`` of the data's fixed order (counted on past its end, so
that a new epoch begins where the old one ends), whatever the micro-batch size and batching mode: the optimizer sees the
same batches in every trial. Modes differ only in how a global batch is split.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Protocol

BATCHINGS = ("padded", "length-grouped", "packed")


class Lengths(Protocol):
    """Real units per sample, in the data's order: a list or an array."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> int: ...


MicroBatches = list[list[int]]


def plan(
    *, samples: int, lengths: Lengths | None, micro_batch_size: int, accumulation_steps: int, batching: str
) -> Iterator[MicroBatches]:
    """The global batches of a run, without end, each as its micro-batches of sample indices.

    Args:
        samples: Samples (or packed rows) of the data set.
        lengths: Real units per sample; ``length-grouped`` needs it, the other modes do not look at it.
        micro_batch_size: Samples per micro-batch.
        accumulation_steps: Micro-batches per global batch.
        batching: ``padded``, ``length-grouped`` (longest first within each global batch) or ``packed``.

    Raises:
        ValueError: There are fewer samples than one global batch has (no optimizer step would ever be made), a size is
            not positive, or the mode is unknown or lacks its lengths.
    """
    _check(samples, lengths, micro_batch_size, accumulation_steps, batching)
    by_length = lengths if batching == "length-grouped" else None
    return _global_batches(samples, by_length, micro_batch_size, accumulation_steps)


def _check(
    samples: int, lengths: Lengths | None, micro_batch_size: int, accumulation_steps: int, batching: str
) -> None:
    if batching not in BATCHINGS:
        raise ValueError(f"unknown batching {batching!r}: use one of {', '.join(BATCHINGS)}")
    if micro_batch_size < 1 or accumulation_steps < 1:
        raise ValueError(f"micro-batch {micro_batch_size} x accumulation {accumulation_steps}: both must be at least 1")
    if batching == "length-grouped" and (lengths is None or len(lengths) != samples):
        raise ValueError("length-grouped batches need the length of every sample: the workload's `lengths()`")
    size = micro_batch_size * accumulation_steps
    if samples < size:
        raise ValueError(
            f"the data has {samples} samples, fewer than one global batch of {size} "
            f"({micro_batch_size} per micro-batch x {accumulation_steps} accumulation steps): no optimizer step would "
            "ever be made. Use a smaller global batch or more data"
        )


def _global_batches(
    samples: int, lengths: Lengths | None, micro_batch_size: int, accumulation_steps: int
) -> Iterator[MicroBatches]:
    size = micro_batch_size * accumulation_steps
    start = 0
    while True:
        batch = [(start + place) % samples for place in range(size)]
        if lengths is not None:
            batch = longest_first(batch, lengths)
        yield [batch[place : place + micro_batch_size] for place in range(0, size, micro_batch_size)]
        start = (start + size) % samples


def padding_share(
    *, lengths: Lengths, micro_batch_size: int, accumulation_steps: int, batching: str, global_batches: int = 50
) -> float:
    """Share (0 to 1) of positions that are padding when every micro-batch is padded to its longest sample.

    Args:
        lengths: Real units per sample.
        micro_batch_size: Samples per micro-batch.
        accumulation_steps: Micro-batches per global batch.
        batching: ``padded`` or ``length-grouped``.
        global_batches: The first so many are looked at, or one pass where that is less.

    Raises:
        ValueError: As :func:`plan`.
    """
    size = micro_batch_size * accumulation_steps
    made = plan(
        samples=len(lengths),
        lengths=lengths,
        micro_batch_size=micro_batch_size,
        accumulation_steps=accumulation_steps,
        batching=batching,
    )
    first = (micro for whole in islice(made, min(global_batches, len(lengths) // size)) for micro in whole)
    sizes = [[int(lengths[index]) for index in micro] for micro in first]
    slots = sum(len(micro) * max(micro) for micro in sizes)
    return 1 - sum(map(sum, sizes)) / slots if slots else 0.0


def longest_first(batch: list[int], lengths: Lengths) -> list[int]:
    """The same samples, longest first; equal ones keep their order."""
    return sorted(batch, key=lambda index: -int(lengths[index]))
