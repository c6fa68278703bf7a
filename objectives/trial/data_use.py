"""What the measured blocks say of the data beside their speed: padding, passes, what the first pass cost, host memory.

Plain arithmetic over what the loop notes anyway; nothing here touches the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import active_children
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from objectives.data.batching import padding_share
from objectives.measure.proc import proportional_bytes
from objectives.measure.window import ALWAYS_DROPPED

if TYPE_CHECKING:
    from objectives.trial.setup import Setup

FEWEST_BLOCKS = 3
"""Blocks of either pass needed to compare the first with the later ones."""


def positions(batch: Any) -> int | None:
    """Positions a micro-batch computes, padding included: elements of its ``input_ids``; None where it has none."""
    ids = batch.get("input_ids") if isinstance(batch, Mapping) else None
    return int(ids.numel()) if isinstance(ids, torch.Tensor) else None


@dataclass(kw_only=True)
class DataUse:
    """Collects block by block.

    Attributes:
        samples: Of the data set; None where it does not say.
        samples_per_block: Of a whole optimizer step.
    """

    samples: int | None
    samples_per_block: int
    _waits: list[float] = field(default_factory=list)
    _units: int = 0
    _positions: int | None = 0

    def note(self, *, units: Sequence[int], positions: Sequence[int | None], wait_seconds: float) -> None:
        """One block."""
        known = [each for each in positions if each is not None]
        whole = self._positions is not None and len(known) == len(positions)
        self._positions = (self._positions or 0) + sum(known) if whole else None
        self._units += sum(units)
        self._waits.append(wait_seconds)

    def to_mapping(self) -> dict[str, Any]:
        """For the ``measurement`` event; a figure that is not known is None.

        ``padding_share``: share of the computed positions that teach nothing. ``data_passes``: how often the data was
        gone through. ``first_pass_wait_seconds`` and ``later_pass_wait_seconds``: median wait of a block for its data.
        """
        first, later = self._by_pass()
        both = min(len(first), len(later)) >= FEWEST_BLOCKS
        return {
            "padding_share": 1 - self._units / self._positions if self._positions else None,
            "data_passes": len(self._waits) * self.samples_per_block / self.samples if self.samples else None,
            "first_pass_wait_seconds": median(first) if both else None,
            "later_pass_wait_seconds": median(later) if both else None,
        }

    def _by_pass(self) -> tuple[list[float], list[float]]:
        """Waits of the first pass (without the first two blocks, which start workers) and of the later ones."""
        whole = self.samples // self.samples_per_block if self.samples else len(self._waits)
        return self._waits[ALWAYS_DROPPED:whole], self._waits[whole:]


def grouped_padding_share(setup: Setup) -> float | None:
    """What ``padding_share`` would be with length-grouped batches, by the samples' lengths; None without lengths."""
    workload, config = setup.workload, setup.config
    lengths = workload.lengths() if hasattr(workload, "lengths") and config.batching == "padded" else None
    if lengths is None or len(lengths) < config.micro_batch_size * config.accumulation_steps:
        return None
    return padding_share(
        lengths=lengths,
        micro_batch_size=config.micro_batch_size,
        accumulation_steps=config.accumulation_steps,
        batching="length-grouped",
    )


def workers_bytes(setup: Setup) -> int | None:
    """Proportional memory of the loader's workers now; None without workers, or where nobody says.

    It grows when reference counts turn pages shared with this process into private ones (case E03).
    """
    if not setup.config.loader_workers:
        return None
    found = [proportional_bytes(child.pid) for child in active_children()]
    known = [size for size in found if size is not None]
    return sum(known) if known else None
