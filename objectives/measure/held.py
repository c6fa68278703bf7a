"""What a process holds and what of it is in use now: the allocator's figures on CUDA, the C library's on a CPU.

``allocated_bytes`` is what the program keeps (CUDA: in tensors; CPU: in use of the C library's heap and mappings),
``reserved_bytes`` what is held for it (CUDA: the caching allocator's segments; CPU: resident anonymous memory). A leak
grows both, fragmentation the second alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from objectives.measure.memory_cuda import largest_free_block
from objectives.measure.proc import status_bytes

if TYPE_CHECKING:
    import torch

LEAST_SHARE_OF_MALLOC = 0.2
"""Where the C library's figures hold less of the resident memory than this, another allocator is loaded."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """One moment. Bytes; None where the device does not say.

    Attributes:
        free_bytes: Held and in no tensor (CPU: free inside the heap).
        largest_free_block_bytes: The largest piece of it (CPU: what the heap could give back at its top).
        retries: Allocations so far that had to give cached blocks back first.
    """

    reserved_bytes: int | None = None
    allocated_bytes: int | None = None
    free_bytes: int | None = None
    largest_free_block_bytes: int | None = None
    retries: int | None = None

    def to_mapping(self) -> dict[str, int | None]:
        """Plain data."""
        return asdict(self)


class _MallInfo2(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33 and later."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


@cache
def _mallinfo2() -> Callable[[], Any] | None:
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return None
    function.restype = _MallInfo2
    return function


def held_by_process(root: str = "/") -> Held:
    """Of this process on a CPU; without glibc's figures the resident memory alone."""
    resident = status_bytes(root=root).get("RssAnon")
    ask = _mallinfo2()
    if ask is None or resident is None:
        return Held(reserved_bytes=resident)
    info = ask()
    used = int(info.uordblks + info.hblkhd)
    if used < LEAST_SHARE_OF_MALLOC * resident:
        return Held(reserved_bytes=resident)
    return Held(
        reserved_bytes=resident,
        allocated_bytes=used,
        free_bytes=int(info.fordblks),
        largest_free_block_bytes=int(info.keepcost),
    )


def held_on_device(device: torch.device, *, blocks: bool) -> Held:
    """Of a CUDA device by this process.

    Args:
        device: Which.
        blocks: Whether the largest free block is looked for; it walks over all segments.
    """
    import torch

    stats = torch.cuda.memory_stats(device)
    reserved, allocated = torch.cuda.memory_reserved(device), torch.cuda.memory_allocated(device)
    largest = largest_free_block(torch.cuda.memory_snapshot()) if blocks else None  # type: ignore[no-untyped-call]
    return Held(
        reserved_bytes=reserved,
        allocated_bytes=allocated,
        free_bytes=reserved - allocated,
        largest_free_block_bytes=largest,
        retries=stats.get("num_alloc_retries"),
    )


def trim_heap() -> None:
    """Gives the heap's free pages back to the system; nothing where the C library cannot."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return
