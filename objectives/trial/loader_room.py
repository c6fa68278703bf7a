"""Whether what the loader's workers keep ready fits this machine, looked at before they are started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from objectives.knobs.loader import host_memory_reason, shared_memory_reason
from objectives.measure.host import memory_available_bytes, shared_memory_bytes

if TYPE_CHECKING:
    from objectives.config import TrainingConfig
    from objectives.contract import Batch


class LoaderRefused(ValueError):
    """The machine has no room for so many batches kept ready; the text says what would help."""


def batch_bytes(batch: Batch) -> int:
    """Bytes of all tensors in a batch."""
    if isinstance(batch, torch.Tensor):
        return batch.nbytes
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    return sum(batch_bytes(part) for part in parts)


def require_loader_room(config: TrainingConfig, longest: Batch) -> None:
    """Refuses workers whose ready batches fit neither shared memory nor what the host has free now (cases E10, E12).

    Args:
        config: Its loader knobs.
        longest: The largest batch a worker may make.

    Raises:
        LoaderRefused: With the sizes and the way out.
    """
    if not config.loader_workers:
        return
    asked = {
        "workers": config.loader_workers,
        "prefetch_factor": config.prefetch_factor,
        "batch_bytes": batch_bytes(longest),
    }
    free = memory_available_bytes()
    reason = shared_memory_reason(**asked, shared_memory_bytes=shared_memory_bytes())
    if reason is None and free is not None:
        reason = host_memory_reason(**asked, free_bytes=free)
    if reason is not None:
        raise LoaderRefused(reason)
