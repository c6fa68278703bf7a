"""A memory reading: what every kind of device is asked. Plain data; a figure that is not known is None, never 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True)
class MemoryReading:
    """What the memory of a run says.

    Attributes:
        peak_memory_bytes: What the device must have free for this configuration: on CUDA the allocator's peak reserved
            plus what lies outside it, on a CPU the peak of anonymous memory above the start.
        peak_allocated_bytes: CUDA: the peak of bytes in live tensors.
        peak_reserved_bytes: CUDA: the peak the allocator held.
        outside_bytes: CUDA: context, modules, libraries, graphs, collectives: device memory of ours that is not the
            allocator's.
        allocation_retries: CUDA: allocations that first had to give cached blocks back.
        fragmentation_share: CUDA: share (0 to 1) of the reserved bytes that no tensor uses now.
        largest_free_block_bytes: CUDA: the largest tensor that would still fit without asking the device for more.
        major_page_faults: Page faults that read from a disk, since the memory object was opened.
        swap_bytes: Memory of the process in swap: above 0 the timing is not of this configuration.
        compile_peak_bytes: The peak right after compilation, its own spike included; None for an eager model.
    """

    peak_memory_bytes: int | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    outside_bytes: int | None = None
    allocation_retries: int | None = None
    fragmentation_share: float | None = None
    largest_free_block_bytes: int | None = None
    major_page_faults: int | None = None
    swap_bytes: int | None = None
    compile_peak_bytes: int | None = None

    def to_mapping(self) -> dict[str, Any]:
        """Plain data for an event."""
        return asdict(self)

    def with_later(self, later: MemoryReading) -> MemoryReading:
        """This reading of the worst case, with a later one's peaks and counters where they are larger or only there."""
        return over_ranks((self, later))


def over_ranks(readings: Sequence[MemoryReading]) -> MemoryReading:
    """One reading for several ranks (or moments): of each figure the largest: the worst rank decides (case D11).

    The largest free block is the smallest of them for the same reason. A figure that one rank lacks is that of the
    others.

    Raises:
        ValueError: No reading.
    """
    if not readings:
        raise ValueError("at least one reading is needed")
    merged: dict[str, Any] = {}
    for field in fields(MemoryReading):
        known = [value for reading in readings if (value := getattr(reading, field.name)) is not None]
        pick = min if field.name == "largest_free_block_bytes" else max
        merged[field.name] = pick(known) if known else None
    return replace(readings[0], **merged)


def fits(readings: Sequence[MemoryReading], limit_bytes: int | None) -> bool:
    """Whether every rank's peak is known and inside the limit. Not the mean, and not rank 0."""
    peaks = [reading.peak_memory_bytes for reading in readings]
    return bool(peaks) and all(peak is not None and (limit_bytes is None or peak <= limit_bytes) for peak in peaks)


def spilled(reading: MemoryReading, total_bytes: int | None) -> bool:
    """Whether memory went where it is slow: swap, or (Windows, WSL) a driver that answers a full card with host memory.

    The driver's spill raises no error, it only makes steps 2 to 10 times slower; what tells it is a peak above what the
    device has (case H10).

    Args:
        reading: Of the worst case.
        total_bytes: What the device has; None when not known.
    """
    figures = (reading.peak_memory_bytes, reading.peak_reserved_bytes, reading.peak_allocated_bytes)
    above = total_bytes is not None and any(figure is not None and figure > total_bytes for figure in figures)
    return above or bool(reading.swap_bytes)


class Memory(Protocol):
    """The memory of one run on one device."""

    def warm(self, threads: int) -> None:
        """Makes what must exist before a cap and a reading: threads and their stacks, or the device's context."""

    def start(self) -> None:
        """Begins the memory window (and the cap, where there is one): peaks count from here on."""

    def note_compile_peak(self) -> None:
        """Called right after compilation: keeps the peak so far, to be shown apart. Resets nothing."""

    def reading(self, after: MemoryReading | None = None) -> MemoryReading:
        """The peaks since :meth:`start` and the counters now.

        Args:
            after: The worst case's reading, once the window is over: its peaks stay, the counters are renewed.
        """

    def used_share(self) -> float | None:
        """Memory in use now as a share of the cap, or without one of the device; can be read after a failure."""

    def cap_reached(self, requested_bytes: int | None = None) -> bool | None:
        """Whether the cap is what refused an allocation; None without a cap. Can be read after a failure.

        Args:
            requested_bytes: What the failed allocation asked for, where its text says so.
        """

    def lift(self) -> None:
        """Ends the window: whatever it cost in speed is undone (on a CPU the cap goes too). Safe to call twice."""
