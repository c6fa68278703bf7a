"""Peak memory of the script's process and the cap on it, as our own children measure it.

CPU: anonymous memory above the moment before the first parameter, in a window of two optimizer steps in which the C
library gives large blocks back at once. CUDA: the allocator's peak; what lies outside it is told beside.
"""

from __future__ import annotations

import ctypes
import resource
from typing import Any

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
SMALL, LARGE, TRIM = 128 * 1024, 32 * 1024**2, 64 * 1024**2
NEAR = 40 * 1024**2


def status() -> dict[str, int]:
    """The sizes in /proc/self/status, in bytes."""
    try:
        with open("/proc/self/status") as file:  # noqa: PTH123 - loaded by every interpreter: nothing more is imported
            fields = [line.split() for line in file if line.endswith(" kB\n")]
    except OSError:
        return {}
    return {words[0][:-1]: int(words[1]) * 1024 for words in fields}


class CpuMemory:
    """This process's memory above its start."""

    def __init__(self, torch: Any, limit: int | None) -> None:
        self._torch, self._limit = torch, limit
        self._start: dict[str, int] = {}
        self._peak: int | None = None
        self.open = False

    def begin(self) -> None:
        """Warms what would count otherwise, forgets the peak so far, and sets the cap."""
        self._warm()
        _libc("mallopt", M_MMAP_THRESHOLD, SMALL)
        _libc("malloc_trim", 0)
        try:
            with open("/proc/self/clear_refs", "w") as file:  # noqa: PTH123
                file.write("5")
        except OSError:
            pass
        self._start, self.open = status(), True
        if self._limit is not None and "VmData" in self._start:
            hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
            soft = self._start["VmData"] + self._limit
            soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))

    def _warm(self) -> None:
        """Compute threads and library code that the first step would bring; no random number is drawn."""
        import importlib

        torch = self._torch
        try:
            importlib.import_module("torch._dynamo")  # the first optimizer of a process imports it
        except Exception:  # noqa: BLE001, S110 - then it will not be imported later either
            pass
        for dtype in (torch.float32, torch.bfloat16):
            ones = torch.ones(256, 256, dtype=dtype)
            torch.mm(ones, ones)

    def close(self) -> None:
        """Ends the window: its peak is kept, the cap goes, and the C library is back at speed."""
        self._peak = self._now()
        if self.open:
            self.open = False
            lift()
            _libc("mallopt", M_MMAP_THRESHOLD, LARGE)
            _libc("mallopt", M_TRIM_THRESHOLD, TRIM)

    def _now(self) -> int | None:
        found = status()
        if "RssAnon" not in self._start or "VmHWM" not in found:
            return None
        return max(0, found["VmHWM"] - found["RssFile"] - found["RssShmem"] - self._start["RssAnon"])

    def reading(self, larger: bool = False) -> dict[str, Any]:
        """The window's peak; ``larger``: a larger batch than any in it has come since, so the peak until now."""
        now, found = self._now(), status()
        known = [peak for peak in (self._peak, now if larger or self._peak is None else None) if peak is not None]
        return {"peak_memory_bytes": max(known) if known else None, "swap_bytes": found.get("VmSwap")}

    def facts(self) -> dict[str, Any]:
        """What a failure is judged by."""
        if not self._start:
            return {}
        found, capped = status(), self._limit is not None
        data = found.get("VmData", 0) - self._start.get("VmData", 0)
        used = max(data, found.get("RssAnon", 0) - self._start["RssAnon"])
        reached = max(data, self._now() or 0) + NEAR
        return {
            "cap_set": capped,
            "memory_used_share": used / self._limit if self._limit else None,
            "cap_reached": self.open and reached >= self._limit if self._limit else None,
        }


class CudaMemory:
    """The current device's memory as this process uses it. The cap is the allocator's own fraction, and stays."""

    open = False

    def __init__(self, torch: Any, limit: int | None, foreign: int) -> None:
        self._cuda, self._torch, self._limit, self._foreign = torch.cuda, torch, limit, foreign
        self._capped_at: int | None = None

    def begin(self) -> None:
        """Sets the cap as soon as the script itself touches the device; touches nothing before."""
        if self._limit is not None:
            self._cuda._lazy_call(self._cap)

    def _cap(self) -> None:
        free, total = self._cuda.mem_get_info()
        assert self._limit is not None
        self._capped_at = max(0, self._limit - max(0, total - free - self._foreign))
        self._cuda.set_per_process_memory_fraction(min(self._capped_at / total, 1.0))

    def close(self) -> None:
        """Nothing ends: the peak counts until the last step."""

    def reading(self, larger: bool = False) -> dict[str, Any]:
        """The peaks so far."""
        free, total = self._cuda.mem_get_info()
        reserved = self._cuda.max_memory_reserved()
        outside = max(0, total - free - self._cuda.memory_reserved() - self._foreign)
        stats = self._cuda.memory_stats()
        return {
            "peak_memory_bytes": reserved + outside,
            "peak_allocated_bytes": self._cuda.max_memory_allocated(),
            "peak_reserved_bytes": reserved,
            "outside_bytes": outside,
            "allocation_retries": stats.get("num_alloc_retries"),
            "swap_bytes": status().get("VmSwap"),
        }

    def facts(self) -> dict[str, Any]:
        """What a failure is judged by."""
        if self._capped_at is None:
            return {}
        free, total = self._cuda.mem_get_info()
        used = total - free - self._foreign
        refused = bool(self._cuda.memory_stats().get("num_ooms"))
        full = free <= (total - (self._limit or total)) / 2
        return {
            "cap_set": True,
            "memory_used_share": used / (self._limit or total),
            "cap_reached": refused and not full,
        }


def lift() -> None:
    """Raises the soft limit on the data segment: after the window, and in loader workers, which inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def _libc(name: str, *arguments: int) -> None:
    try:
        getattr(ctypes.CDLL(None), name)(*arguments)
    except (AttributeError, OSError):
        pass


def memory_of(torch: Any, wish: dict[str, Any]) -> Any:
    """The memory that counts on this kind of device."""
    if wish.get("device") == "cuda":
        return CudaMemory(torch, wish.get("limit_bytes"), wish.get("foreign_bytes") or 0)
    return CpuMemory(torch, wish.get("limit_bytes"))
