"""Peak memory of a run on a CPU, made repeatable, and a cap on it that is an error one can catch.

Plain peak resident memory moves by 7 % between runs of one configuration and holds 84 to 132 MiB of library code. What
repeats to the MiB is the peak of *anonymous* memory while large blocks of the C library go back to the system as soon
as they are freed::

    peak = VmHWM - RssFile(end) - RssShmem(end) - RssAnon(start)     with mallopt(M_MMAP_THRESHOLD, 128 KiB)

That threshold costs 19 to 32 % of speed, so it acts in the memory window only, and so does the cap: a soft limit on the
data segment (``RLIMIT_DATA`` = VmData now + budget), which with that threshold means live bytes.
"""

from __future__ import annotations

import ctypes
import gc
import resource
from pathlib import Path

from objectives.measure.proc import major_page_faults, status_bytes, swap_bytes
from objectives.measure.reading import MemoryReading

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
SMALL_THRESHOLD_BYTES = 128 * 1024
LARGE_THRESHOLD_BYTES, TRIM_THRESHOLD_BYTES = 32 * 1024**2, 64 * 1024**2
"""What glibc's own moving threshold comes to in a training loop."""
NEAR_BYTES = 40 * 1024**2
"""So near to the limit, a refused thread stack or kernel scratch space is the limit's doing."""


def lift_data_limit(_worker: int = 0) -> None:
    """Raises this process's data limit to its hard limit: for loader workers, which inherit the child's cap."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def warm_pools(threads: int) -> None:
    """One small optimizer step, so that the compute threads, their stacks and what torch imports late exist already.

    Under a cap a thread that cannot start ends the process without an exception; and the first optimizer of a process
    imports the compiler (tens of MiB of Python objects that are no part of a configuration's memory).
    """
    import torch

    torch.set_num_threads(threads)
    for dtype in (torch.float32, torch.bfloat16):
        layer = torch.nn.Linear(256, 256, dtype=dtype)
        optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
        layer(torch.ones(512, 256, dtype=dtype)).sum().backward()
        optimizer.step()


class CpuMemory:
    """The memory of this process above its start. See :class:`objectives.measure.reading.Memory`."""

    def __init__(self, limit_bytes: int | None = None, *, cap: bool = True) -> None:
        self._limit = limit_bytes
        self._cap = cap and limit_bytes is not None
        self._faults = major_page_faults() or 0
        self._start: dict[str, int] = {}
        self._compile_peak: int | None = None
        self._open = False

    def warm(self, threads: int) -> None:
        """Threads, their stacks, and one backward of either dtype."""
        warm_pools(threads)

    def start(self) -> None:
        """Begins the window: small threshold, peak forgotten, start remembered, cap set."""
        gc.collect()
        _mallopt(M_MMAP_THRESHOLD, SMALL_THRESHOLD_BYTES)
        _trim()
        _forget_peak()
        self._start, self._open = status_bytes(), True
        if self._cap and self._limit is not None and "VmData" in self._start:
            hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
            soft = self._start["VmData"] + self._limit
            resource.setrlimit(
                resource.RLIMIT_DATA, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard)
            )

    def note_compile_peak(self) -> None:
        """Keeps the peak so far as the compiler's."""
        self._compile_peak = self._peak()

    def reading(self, after: MemoryReading | None = None) -> MemoryReading:
        """The peak since :meth:`start`; after the window still its own, for only that one repeats."""
        now = MemoryReading(
            peak_memory_bytes=self._peak() if after is None else after.peak_memory_bytes,
            major_page_faults=_above(major_page_faults(), self._faults),
            swap_bytes=swap_bytes(),
            compile_peak_bytes=self._compile_peak,
        )
        return now if after is None else after.with_later(now)

    def _peak(self) -> int | None:
        now = status_bytes()
        needed = ("VmHWM", "RssFile", "RssShmem")
        if "RssAnon" not in self._start or not all(name in now for name in needed):
            return None
        return max(0, now["VmHWM"] - now["RssFile"] - now["RssShmem"] - self._start["RssAnon"])

    def used_share(self) -> float | None:
        """Anonymous memory (or data segment, if more) above the start, as a share of the limit; None without one."""
        used = self._used(peak=False)
        return None if used is None or not self._limit else used / self._limit

    def _used(self, *, peak: bool) -> int | None:
        """Bytes above the start: of the data segment now, or with ``peak`` the largest that was ever touched."""
        now = status_bytes()
        if not self._start or "VmData" not in now:
            return None
        data = now["VmData"] - self._start["VmData"]
        return max(data, self._peak() or 0) if peak else max(data, now["RssAnon"] - self._start["RssAnon"])

    def cap_reached(self, requested_bytes: int | None = None) -> bool | None:
        """Whether what was in use (the peak survives the unwinding of an exception) and the request pass the limit."""
        used = self._used(peak=True)
        if not self._cap or self._limit is None or used is None:
            return None
        if not self._open:
            return False
        return used + (requested_bytes or 0) + NEAR_BYTES >= self._limit

    def lift(self) -> None:
        """Raises the data limit and sets the C library back to speed."""
        if not self._open:
            return
        self._open = False
        if self._cap:
            lift_data_limit()
        _mallopt(M_MMAP_THRESHOLD, LARGE_THRESHOLD_BYTES)
        _mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)


def _above(value: int | None, start: int) -> int | None:
    return None if value is None else value - start


def _mallopt(option: int, value: int) -> bool:
    """Sets an option of the C library's allocator; False where it has none (musl, macOS)."""
    try:
        return bool(ctypes.CDLL(None).mallopt(option, value))
    except (AttributeError, OSError):
        return False


def use_small_threshold() -> None:
    """From now on large blocks go back to the system when they are freed: less is held, at 19 to 32 % of speed."""
    _mallopt(M_MMAP_THRESHOLD, SMALL_THRESHOLD_BYTES)


def _trim() -> None:
    """Gives the heap's free pages back, so that the start does not hide in them what comes later."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return


def _forget_peak() -> None:
    """Resets VmHWM to what is resident now. Where that is refused, the peak since the process's start counts."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return
