"""One global batch, split in several ways: which samples, and their micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from objectives.data.batching import longest_first, plan

if TYPE_CHECKING:
    from objectives.contract import Batch, Workload

LOOKED_AT = 64
"""Global batches from the data's start among which the one with the most unequal micro-batches is taken."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """How a global batch is divided. ``micro_batch_size`` x ``accumulation_steps`` is its samples."""

    micro_batch_size: int
    accumulation_steps: int

    @property
    def samples(self) -> int:
        """Of the whole global batch."""
        return self.micro_batch_size * self.accumulation_steps


def reference_split(examined: Split, *, baseline: int, whole_fits: bool) -> Split | None:
    """What a split is compared with: the whole batch where it fits, else the baseline's micro-batch, else the half.

    Args:
        examined: The split in question; a reference is never the same.
        baseline: Micro-batch size of the baseline.
        whole_fits: Whether the whole global batch fits in memory at once.

    Returns:
        None for a global batch of one sample: there is no other split.
    """
    total = examined.samples
    halves = [size for size in range(examined.micro_batch_size - 1, 0, -1) if total % size == 0]
    wanted = [*([total] if whole_fits else []), baseline, *halves, *([total] if not halves else [])]
    for size in wanted:
        if size != examined.micro_batch_size and total % size == 0:
            return Split(micro_batch_size=size, accumulation_steps=total // size)
    return None


def lengths_of(workload: Workload) -> Any:
    """Real units per sample in the data's order; None where the workload does not say."""
    return workload.lengths() if hasattr(workload, "lengths") else None


def uneven_batch(lengths: Any, samples: int, split: Split) -> int:
    """Index of the global batch whose micro-batches differ most in real units; 0 without lengths."""
    if lengths is None or len(lengths) != samples:
        return 0
    count = max(1, min(LOOKED_AT, samples // split.samples))

    def unevenness(index: int) -> float:
        start, size = index * split.samples, split.micro_batch_size
        sums = [
            sum(int(lengths[start + place + each]) for each in range(size)) for place in range(0, split.samples, size)
        ]
        sums = sums if len(sums) > 1 else [int(lengths[start + each]) for each in range(split.samples)]
        return (max(sums) - min(sums)) / max(sum(sums), 1)

    return max(range(count), key=lambda index: (unevenness(index), -index))


def indices_of(workload: Workload, split: Split, batching: str, index: int) -> list[list[int]]:
    """The samples of each micro-batch of one global batch, as training would take them."""
    dataset = workload.dataset()
    batches = plan(
        samples=len(dataset),
        lengths=lengths_of(workload),
        micro_batch_size=split.micro_batch_size,
        accumulation_steps=split.accumulation_steps,
        batching=batching,
    )
    return next(islice(batches, index, None))


def collated(workload: Workload, indices: Sequence[Sequence[int]]) -> list[Batch]:
    """The micro-batches themselves, on the host."""
    dataset = workload.dataset()
    return [workload.collate([dataset[one] for one in each]) for each in indices]


def unlike_groups(indices: Sequence[int], lengths: Any) -> tuple[list[int], list[int]] | None:
    """Two small groups of samples as unlike in length as the batch has them: one to two samples each.

    Groups of two where there are four samples: batch norm refuses single ones. None for fewer than two samples.
    """
    size = 2 if len(indices) >= 4 else 1
    if len(indices) < 2:
        return None
    ordered = list(indices) if lengths is None else list(reversed(longest_first(list(indices), lengths)))
    return ordered[:size], ordered[-size:]
