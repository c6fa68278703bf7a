"""The processes of this machine as Linux' /proc tells them: who belongs to a run, and how to end it for certain.

Pure standard library; both the template and the worker use it. Source of the fields: proc(5), pidfd_send_signal(2).
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

RUN_VARIABLE = "TIGHTFIT_RUN"
"""Environment variable that marks every process of a run."""
MARK_BYTES = 64
"""Room for a run's id in a template's environment, see :func:`mark`."""
_ENVIRONMENT_START = 47
"""Place of ``env_start`` (field 50) in /proc/PID/stat, counted from the field behind the command's name."""
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process at one moment.

    Attributes:
        group: Process group.
        state: One letter of proc(5); ``Z`` and ``X`` are dead.
        started: Start time in clock ticks since boot; with ``pid`` it names one process for ever.
    """

    pid: int
    parent: int
    group: int
    session: int
    state: str
    started: int

    @property
    def alive(self) -> bool:
        """Whether it still runs (a zombie does not)."""
        return self.state not in "ZX"


def read(pid: int) -> Process | None:
    """The process with that number; None when there is none (any more)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    state, parent, group, session = fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3])
    return Process(pid=pid, parent=parent, group=group, session=session, state=state, started=int(fields[19]))


def table() -> dict[int, Process]:
    """Every process there is now, by number."""
    found = (read(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {process.pid: process for process in found if process is not None}


def own_threads() -> int:
    """How many threads this process has, those of native libraries included."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def own_files() -> dict[int, str]:
    """This process's open descriptors and what each is."""
    found: dict[int, str] = {}
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found[int(entry.name)] = str(entry.readlink())
    return found


def run_of(pid: int) -> str | None:
    """The run whose mark a process carries; None without a mark or when it may not be read."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    prefix = f"{RUN_VARIABLE}=".encode()
    values = [entry[len(prefix) :] for entry in environment.split(b"\0") if entry.startswith(prefix)]
    return values[-1].decode("utf-8", "replace") if values else None


def tree(root: int, processes: Mapping[int, Process]) -> set[int]:
    """The numbers of a process and of everything below it."""
    found, waiting = {root}, [root]
    while waiting:
        parent = waiting.pop()
        below = [p.pid for p in processes.values() if p.parent == parent and p.pid not in found]
        found.update(below)
        waiting.extend(below)
    return found


def left_behind(run: str, leader: int, *, also: Callable[[Process], bool] = lambda _process: False) -> list[Process]:
    """Living processes of a run other than its leader.

    Belonging to it are its leader's group and session, whatever carries its mark, whatever ``also`` names, and all that
    these have started.

    Args:
        run: The run's id.
        leader: The process that ran the run: dead already, its number not given to another one yet.
        also: Says of a process nobody else claims whether it belongs to the run too.
    """
    processes = table()
    since = processes[leader].started if leader in processes else 0
    living = [p for p in processes.values() if p.alive and p.started >= since and p.pid not in (leader, os.getpid(), 1)]
    roots = [p for p in living if leader in (p.group, p.session) or run_of(p.pid) == run or also(p)]
    numbers = set().union(*(tree(p.pid, processes) for p in roots)) - {leader, os.getpid(), 1}
    return [p for p in living if p.pid in numbers]


def end(processes: Iterable[Process], number: int = signal.SIGKILL) -> None:
    """Signals exactly these processes, never another one that got a number since."""
    for process in processes:
        with suppress(ProcessLookupError, PermissionError), _handle(process.pid) as handle:
            now = read(process.pid)
            if now is not None and now.started == process.started:
                handle.send(number)


def end_all(find: Callable[[], list[Process]], *, limit_seconds: float = 5.0) -> tuple[int, int]:
    """Kills what ``find`` returns until it returns nothing and all that was killed is dead.

    A dying process gives up its memory, and so its mark, before it is dead.

    Returns:
        How many processes were killed, and how many outlived the limit (stuck in the kernel).
    """
    give_up_at = time.monotonic() + limit_seconds
    ended: dict[tuple[int, int], Process] = {}
    while True:
        found = find()
        ended |= {(process.pid, process.started): process for process in found}
        left = [process for process in ended.values() if _still_lives(process)]
        if not left or time.monotonic() > give_up_at:
            return len(ended), len(left)
        end(left)
        time.sleep(0.002)


def _still_lives(process: Process) -> bool:
    now = read(process.pid)
    return now is not None and now.alive and now.started == process.started


class _handle:  # noqa: N801 - reads as a verb in a with statement
    """A pidfd for the length of a block; plain kill(2) where the kernel has none."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._descriptor = open_pidfd(pid)

    def __enter__(self) -> _handle:
        return self

    def send(self, number: int) -> None:
        """Sends a signal; raises ``ProcessLookupError`` when the process is gone."""
        send_signal(self._pid, self._descriptor, number)

    def __exit__(self, *_error: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


def open_pidfd(pid: int) -> int | None:
    """A descriptor that means this process for ever; None where the kernel has none (before Linux 5.3, some sandboxes).

    Raises:
        ProcessLookupError: No such process.
    """
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None


def send_signal(pid: int, pidfd: int | None, number: int) -> None:
    """Sends a signal through the pidfd, or by number without one."""
    if pidfd is None:
        os.kill(pid, number)
    else:
        signal.pidfd_send_signal(pidfd, number)


def process_control(option: int, value: int) -> None:
    """prctl(2) with one argument. A failure is an ``OSError``."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def mark(run: str) -> None:
    """Writes the run's id over the placeholder in the environment this process was started with.

    /proc/PID/environ shows the environment of the last exec, so ``os.environ`` of a forked child never appears there.
    The placeholder's own memory does, in the child and in all it forks.
    """
    start = int(_stat_fields()[_ENVIRONMENT_START])
    length = int(_stat_fields()[_ENVIRONMENT_START + 1]) - start
    if start == 0:
        return
    area = b"\0" + ctypes.string_at(start, length)
    place = area.find(f"\0{RUN_VARIABLE}={placeholder()}".encode())
    if place >= 0:
        value = run.encode()[:MARK_BYTES].ljust(MARK_BYTES, b"\0")
        ctypes.memmove(start + place + len(RUN_VARIABLE) + 1, value, MARK_BYTES)


def placeholder() -> str:
    """The value of ``TIGHTFIT_RUN`` that a template is started with."""
    return "-" * MARK_BYTES


def _stat_fields() -> list[bytes]:
    text = Path("/proc/self/stat").read_bytes()
    return text[text.rindex(b")") + 2 :].split()
