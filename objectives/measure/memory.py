"""Peak memory of a run, the cap on it, and what else its memory tells. One interface for both kinds of device.

    memory = open_memory(device, limit_bytes)
    memory.warm(threads)  ->  memory.start()  ->  build, worst case  ->  memory.reading()  ->  memory.lift()  ->  timing
                              (cap on)                                                         (cap off)

The figures are :class:`MemoryReading`; the interface is :class:`Memory`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from objectives.measure.memory_cpu import CpuMemory, lift_data_limit
from objectives.measure.memory_cuda import CudaMemory
from objectives.measure.reading import Memory, MemoryReading, fits, over_ranks, spilled

if TYPE_CHECKING:
    import torch

__all__ = [
    "CpuMemory",
    "CudaMemory",
    "Memory",
    "MemoryReading",
    "fits",
    "lift_data_limit",
    "open_memory",
    "over_ranks",
    "spilled",
]


def open_memory(device: torch.device | str, limit_bytes: int | None = None, *, cap: bool = True) -> Memory:
    """The memory of a device, before anything was put on it.

    Args:
        device: Where the run trains.
        limit_bytes: What ``peak_memory_bytes`` may be at most; None for no limit.
        cap: Whether the limit is enforced on this process (else it only serves :meth:`Memory.used_share`).
    """
    if str(device).startswith("cuda"):
        return CudaMemory(device, limit_bytes, cap=cap)
    return CpuMemory(limit_bytes, cap=cap)
