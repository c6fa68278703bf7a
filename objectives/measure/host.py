"""What this machine has for a process: memory, cores, shared memory, as control groups leave it. From /proc and /sys.

/proc is not divided between containers: it shows the host's memory and cores. The limit that kills is the control
group's (case E07), and a quota of two cores' time does not show in the affinity (case E01). ``root`` lets a folder of
files stand in for the real ones.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from objectives.measure.proc import KIB

NO_LIMIT_BYTES = 2**60
"""Control groups of version 1 write "no limit" as a number near 2^63."""
LIBRARIES = ("torch", "transformers", "peft", "numpy")


def read_text(path: Path) -> str | None:
    """The file's text without blanks around it; None where it is missing or not readable."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def _group_paths(root: str, controller: str) -> Iterator[Path]:
    """Folders of this process's control group for a controller, version 2 and 1, from its own up to the mount's top.

    Inside a container the path in ``/proc/self/cgroup`` may be the host's and not exist here: the walk upwards ends at
    the mount, which then is the container's own group.
    """
    mount = Path(root, "sys/fs/cgroup")
    for line in (read_text(Path(root, "proc/self/cgroup")) or "0::/").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            bases = (mount, mount / "unified")
        elif controller in controllers.split(","):
            bases = (mount / controllers, mount / controller)
        else:
            continue
        inside = Path(path.lstrip("/"))
        for base in bases:
            yield from (base / part for part in (inside, *inside.parents))


def _group_values(root: str, controller: str, *names: str) -> Iterator[str]:
    seen = set()
    for folder in _group_paths(root, controller):
        for name in names:
            path = folder / name
            if path not in seen and (text := read_text(path)) is not None:
                seen.add(path)
                yield text


def _meminfo(root: str, name: str) -> int | None:
    for line in (read_text(Path(root, "proc/meminfo")) or "").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * KIB
    return None


def memory_limit_bytes(root: str = "/") -> int | None:
    """Bytes of memory this process may use at most: the smallest of the host's and every control group's above it."""
    limits = [_meminfo(root, "MemTotal")]
    limits += [_whole(text) for text in _group_values(root, "memory", "memory.max", "memory.limit_in_bytes")]
    known = [limit for limit in limits if limit is not None and limit < NO_LIMIT_BYTES]
    return min(known, default=None)


def memory_available_bytes(root: str = "/") -> int | None:
    """Bytes free for new work now: the host's ``MemAvailable``, and each control group's limit less its use."""
    room = [_meminfo(root, "MemAvailable")]
    for folder in _group_paths(root, "memory"):
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, used = (_whole(read_text(folder / name)) for name in (limit_name, used_name))
            if limit is not None and used is not None and limit < NO_LIMIT_BYTES:
                room.append(max(0, limit - used))
    return min((value for value in room if value is not None), default=None)


def kernel_kills(root: str = "/") -> int | None:
    """Processes the kernel has killed for memory so far, here and on the host; None where it does not count."""
    counts = []
    texts = _group_values(root, "memory", "memory.events", "memory.oom_control")
    for text in (*texts, read_text(Path(root, "proc/vmstat")) or ""):
        words = (line.split() for line in text.splitlines())
        counts += [int(word[1]) for word in words if len(word) == 2 and word[0] == "oom_kill"]
    return max(counts, default=None)


def cores(root: str = "/") -> int:
    """Cores this process may use: the smallest of affinity, cpuset and CPU quota (rounded down), at least 1."""
    found = [_affinity(root)]
    found += [_count(text) for text in _group_values(root, "cpuset", "cpuset.cpus.effective", "cpuset.effective_cpus")]
    found += [_quota(text) for text in _group_values(root, "cpu", "cpu.max")]
    found += [_old_quota(folder) for folder in _group_paths(root, "cpu")]
    return max(1, min((count for count in found if count is not None), default=os.cpu_count() or 1))


def _affinity(root: str) -> int | None:
    for line in (read_text(Path(root, "proc/self/status")) or "").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return _count(line.partition(":")[2])
    return len(os.sched_getaffinity(0)) if root == "/" and hasattr(os, "sched_getaffinity") else None


def _count(ranges: str) -> int | None:
    """The number of cores in a list like ``0-3,8``; None for an empty one."""
    total = 0
    for part in filter(None, ranges.strip().split(",")):
        low, _, high = part.partition("-")
        total += int(high or low) - int(low) + 1
    return total or None


def _quota(text: str) -> int | None:
    quota, _, period = text.partition(" ")
    return int(quota) // int(period or 100_000) if quota.isdigit() else None


def _old_quota(folder: Path) -> int | None:
    quota, period = (_whole(read_text(folder / name)) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
    return quota // period if quota is not None and period and quota > 0 else None


def shared_memory_bytes(path: str = "/dev/shm") -> int | None:  # noqa: S108 - the mount itself is meant
    """Size of the shared-memory file system that loader workers hand batches through; None where there is none."""
    try:
        size = os.statvfs(path)
    except OSError:
        return None
    return size.f_frsize * size.f_blocks


def cpu_model(root: str = "/") -> str | None:
    """The processor's name as the kernel says it; None where it does not."""
    for line in (read_text(Path(root, "proc/cpuinfo")) or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model") and value.strip():
            return value.strip()
    return platform.processor() or None


def load_average(root: str = "/") -> float | None:
    """Runnable processes, mean over the last minute."""
    text = read_text(Path(root, "proc/loadavg"))
    return float(text.split()[0]) if text else None


def versions() -> dict[str, str | None]:
    """Python, kernel and the libraries by name; None for what is not installed. Imports none of them."""
    found: dict[str, str | None] = {"python": platform.python_version(), "kernel": platform.release()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found
