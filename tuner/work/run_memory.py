"""A run's memory as seen from outside, at polling times: evidence beside what the child measures itself."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from objectives.trial import process_table
from objectives.trial.process_table import Process
from tuner.work.processes import number_behind, read_text

FIRST_TREE_SECONDS = 1.0
LARGEST_TREE_SECONDS = 8.0
"""Readings of the whole tree come ever more seldom (the kernel walks its page tables: milliseconds per gigabyte)."""


@dataclass(frozen=True, kw_only=True)
class ProcessMemory:
    """One process's memory in bytes: its data segment (``RLIMIT_DATA`` limits it) and its resident anonymous part."""

    data_bytes: int
    anonymous_bytes: int


def read_memory(pid: int) -> ProcessMemory | None:
    """A process's memory now; None when it is gone (or dead and not yet waited for)."""
    status = read_text(Path(f"/proc/{pid}/status"))
    data, anonymous = number_behind(status, "VmData:"), number_behind(status, "RssAnon:")
    if data is None or anonymous is None:
        return None
    return ProcessMemory(data_bytes=data * 1024, anonymous_bytes=anonymous * 1024)


def pss_bytes(processes: list[Process]) -> int | None:
    """Memory of these processes, shared pages divided among their sharers; None when nothing can be read."""
    sizes = [number_behind(read_text(Path(f"/proc/{p.pid}/smaps_rollup")), "Pss:") for p in processes]
    known = [size for size in sizes if size is not None]
    return sum(known) * 1024 if known else None


class Peaks:
    """The largest memory seen of a run's process and of its tree, and who was in that tree."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._tree_seconds = FIRST_TREE_SECONDS
        self._tree_due_at = time.monotonic() + self._tree_seconds
        self._seen: dict[int, Process] = {}
        self.data_bytes: int | None = None
        self.anonymous_bytes: int | None = None
        self.tree_pss_bytes: int | None = None

    @property
    def seen(self) -> list[Process]:
        """Every process found in the tree so far, in no order; many may be gone."""
        return list(self._seen.values())

    def look(self) -> None:
        """Reads the process's memory, and now and then the tree's."""
        memory = read_memory(self._pid)
        if memory is None:
            return
        self.data_bytes = max(self.data_bytes or 0, memory.data_bytes)
        self.anonymous_bytes = max(self.anonymous_bytes or 0, memory.anonymous_bytes)
        if time.monotonic() >= self._tree_due_at:
            self._tree_seconds = min(2 * self._tree_seconds, LARGEST_TREE_SECONDS)
            self._tree_due_at = time.monotonic() + self._tree_seconds
            self._look_at_tree()

    def _look_at_tree(self) -> None:
        table = process_table.table()
        members = [table[pid] for pid in process_table.tree(self._pid, table) if pid in table]
        self._seen |= {process.pid: process for process in members}
        pss = pss_bytes(members)
        if pss is not None:
            self.tree_pss_bytes = max(self.tree_pss_bytes or 0, pss)
