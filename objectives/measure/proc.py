"""What Linux says about a process and its descendants. Torch-free; every missing figure is None.

Everything takes ``root`` so that a folder of files can stand in for the real /proc.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

KIB = 1024


def status_bytes(pid: int | str = "self", root: str = "/") -> dict[str, int]:
    """The sizes in ``/proc/PID/status`` (``VmData``, ``RssAnon``, ...) in bytes; empty where there are none."""
    try:
        text = Path(root, "proc", str(pid), "status").read_text()
    except OSError:
        return {}
    fields = (line.split() for line in text.splitlines() if line.endswith(" kB"))
    return {words[0].rstrip(":"): int(words[1]) * KIB for words in fields}


def swap_bytes(pid: int | str = "self", root: str = "/") -> int | None:
    """Memory of the process that lies in swap."""
    return status_bytes(pid, root).get("VmSwap")


def _stat_fields(pid: int | str, root: str) -> list[str] | None:
    """Fields of ``/proc/PID/stat`` from the third (state) on: the second, the name, may hold blanks and brackets."""
    try:
        text = Path(root, "proc", str(pid), "stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def major_page_faults(pid: int | str = "self", root: str = "/") -> int | None:
    """Page faults so far that had to read from a disk (``majflt``): above a handful, memory is short."""
    fields = _stat_fields(pid, root)
    return int(fields[9]) if fields else None


def cpu_seconds(pid: int | str = "self", root: str = "/") -> float | None:
    """CPU time used so far, user and system, with that of children it has waited for."""
    fields = _stat_fields(pid, root)
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") if fields else None


def tree(pid: int, root: str = "/") -> tuple[int, ...]:
    """The process and its living descendants, by parent, in ascending order of distance."""
    children: dict[int, list[int]] = {}
    for entry in Path(root, "proc").glob("[0-9]*"):
        if fields := _stat_fields(entry.name, root):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for one in found:
        found.extend(child for child in children.get(one, ()) if child not in found)
    return tuple(found)


def proportional_bytes(pid: int | None = None, root: str = "/") -> int | None:
    """Proportional memory (PSS) of a process and all its descendants: a shared page counts once, split among its users.

    The sum of resident sizes would count the pages that forked loader workers share once per worker; and it would not
    rise while reference counts turn shared pages into private ones (case E03). None where the kernel does not tell.
    """
    sizes = [_pss(one, root) for one in tree(os.getpid() if pid is None else pid, root)]
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _pss(pid: int, root: str) -> int | None:
    try:
        text = Path(root, "proc", str(pid), "smaps_rollup").read_text()
    except OSError:  # gone meanwhile, or not ours to read
        return None
    return next((int(line.split()[1]) * KIB for line in text.splitlines() if line.startswith("Pss:")), None)


@dataclass(frozen=True, kw_only=True)
class CpuTimes:
    """Seconds of CPU time of the whole machine since its start, and of one process tree among them.

    Attributes:
        busy_seconds: Over all cores, everything but idle, waiting for a disk, and stolen.
        stolen_seconds: Taken by the hypervisor for other machines.
        total_seconds: Over all cores, everything.
        own_seconds: Of the process tree.
    """

    busy_seconds: float
    stolen_seconds: float
    total_seconds: float
    own_seconds: float


def cpu_times(pid: int | None = None, root: str = "/") -> CpuTimes | None:
    """The machine's CPU times now; None where there is no ``/proc/stat``."""
    try:
        words = Path(root, "proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return None
    user, nice, system, idle, disk, interrupt, soft, stolen = (int(word) / os.sysconf("SC_CLK_TCK") for word in words)
    own = sum(cpu_seconds(one, root) or 0.0 for one in tree(os.getpid() if pid is None else pid, root))
    busy = user + nice + system + interrupt + soft
    return CpuTimes(
        busy_seconds=busy, stolen_seconds=stolen, total_seconds=busy + idle + disk + stolen, own_seconds=own
    )


def neighbours(before: CpuTimes, after: CpuTimes) -> Mapping[str, float | None]:
    """What others did between two readings: shares (0 to 1) of all cores' time that was busy for others, and stolen."""
    total = after.total_seconds - before.total_seconds
    if total <= 0.0:
        return {"neighbour_share": None, "stolen_share": None}
    others = (after.busy_seconds - before.busy_seconds) - (after.own_seconds - before.own_seconds)
    stolen = after.stolen_seconds - before.stolen_seconds
    return {
        "neighbour_share": min(max(others / total, 0.0), 1.0),
        "stolen_share": min(max(stolen / total, 0.0), 1.0),
    }
