"""Peak memory of a run on a CUDA device, and a cap on it by the allocator's own fraction.

Peak memory is what the device must have free: the allocator's peak *reserved* plus what lies outside the allocator
(context, modules, cuDNN, NCCL, graphs: device used minus reserved), read after the worst-case step. Peaks are never
reset after the start: replays of a captured graph allocate nothing, and a reset would hide the capture's own peak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from objectives.measure.nvidia import used_bytes_before_context
from objectives.measure.proc import major_page_faults, swap_bytes
from objectives.measure.reading import MemoryReading

if TYPE_CHECKING:
    import torch


class CudaMemory:
    """The memory of one device as this process uses it. See :class:`objectives.measure.reading.Memory`."""

    def __init__(self, device: torch.device | str, limit_bytes: int | None = None, *, cap: bool = True) -> None:
        import torch

        self._device = torch.device(device)
        self._limit = limit_bytes
        self._cap = cap and limit_bytes is not None
        self._faults = major_page_faults() or 0
        self._foreign = 0
        self._compile_peak: int | None = None
        self._capped_at: int | None = None

    def warm(self, threads: int) -> None:
        """The device's context, and one product and backward: most of what lies outside the allocator exists then."""
        import torch

        torch.set_num_threads(threads)
        self._foreign = used_bytes_before_context(self._device) or 0
        layer = torch.nn.Linear(256, 256, device=self._device)
        layer(torch.ones(256, 256, device=self._device)).sum().backward()
        torch.cuda.synchronize(self._device)

    def start(self) -> None:
        """Frees what :meth:`warm` left, begins the peaks and sets the cap: limit minus what already lies outside."""
        import torch

        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        if self._cap and self._limit is not None:
            _free, total = torch.cuda.mem_get_info(self._device)
            self._capped_at = max(0, self._limit - self._outside())
            torch.cuda.set_per_process_memory_fraction(min(self._capped_at / total, 1.0), self._device)

    def _outside(self) -> int:
        """Our bytes on the device that are not the allocator's: used, less reserved, less what others held before."""
        import torch

        torch.cuda.synchronize(self._device)
        free, total = torch.cuda.mem_get_info(self._device)
        return max(0, total - free - torch.cuda.memory_reserved(self._device) - self._foreign)

    def note_compile_peak(self) -> None:
        """Keeps the peak so far as the compiler's; resets nothing."""
        import torch

        self._compile_peak = torch.cuda.max_memory_reserved(self._device) + self._outside()

    def reading(self, after: MemoryReading | None = None) -> MemoryReading:
        """The peaks since :meth:`start`; with ``after`` the larger of both."""
        import torch

        reserved = torch.cuda.max_memory_reserved(self._device)
        outside = self._outside()
        stats = torch.cuda.memory_stats(self._device)
        now = MemoryReading(
            peak_memory_bytes=reserved + outside,
            peak_allocated_bytes=torch.cuda.max_memory_allocated(self._device),
            peak_reserved_bytes=reserved,
            outside_bytes=outside,
            allocation_retries=stats.get("num_alloc_retries"),
            fragmentation_share=fragmentation_share(stats),
            largest_free_block_bytes=largest_free_block(torch.cuda.memory_snapshot()),  # type: ignore[no-untyped-call]
            major_page_faults=_above(major_page_faults(), self._faults),
            swap_bytes=swap_bytes(),
            compile_peak_bytes=self._compile_peak,
        )
        return now if after is None else after.with_later(now)

    def used_share(self) -> float | None:
        """Reserved plus outside, as a share of the limit or the device; None when the device does not answer."""
        import torch

        try:
            total = torch.cuda.mem_get_info(self._device)[1]
            used = torch.cuda.memory_reserved(self._device) + self._outside()
        except RuntimeError:  # after a sticky error every call fails: the first error must stay the one reported
            return None
        return used / (self._limit or total)

    def cap_reached(self, requested_bytes: int | None = None) -> bool | None:
        """Whether the allocator ran out and its peak with the request passes the cap."""
        import torch

        if self._capped_at is None:
            return None
        try:
            stats = torch.cuda.memory_stats(self._device)
        except RuntimeError:
            return None
        if not stats.get("num_ooms"):
            return False
        if requested_bytes is None:
            return self._device_has_room()
        return bool(stats.get("reserved_bytes.all.peak", 0) + requested_bytes >= self._capped_at)

    def _device_has_room(self) -> bool:
        """Whether the device itself is far from full: then its allocator refused because of the cap."""
        import torch

        free, total = torch.cuda.mem_get_info(self._device)
        assert self._limit is not None
        return free > (total - self._limit) / 2 > 0

    def lift(self) -> None:
        """Ends the window. The cap stays: it costs nothing here, and the timing is then that of the smaller device."""


def _above(value: int | None, start: int) -> int | None:
    return None if value is None else value - start


def fragmentation_share(stats: dict[str, Any]) -> float | None:
    """Share of the reserved bytes that no tensor uses, from the allocator's statistics; None with nothing reserved."""
    reserved = stats.get("reserved_bytes.all.current", 0)
    if not reserved:
        return None
    return float(min(max(1 - stats.get("allocated_bytes.all.current", 0) / reserved, 0.0), 1.0))


def largest_free_block(snapshot: list[dict[str, Any]]) -> int:
    """Bytes of the largest block that is held and free, from the allocator's snapshot of segments; 0 with none."""
    blocks = (block for segment in snapshot for block in segment.get("blocks", ()))
    return max((int(block["size"]) for block in blocks if block["state"] == "inactive"), default=0)
