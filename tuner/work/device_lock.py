"""One run per device: a lock that lives as long as the run's child, and the wait until the device is free again."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

RETRY_SECONDS = 0.1


class DeviceBusyError(Exception):
    """Another process's run still holds the device after the wait. Its text names the holder."""


class DeviceLock:
    """A file lock (flock) per device.

    Hand it to :meth:`Launcher.start`: the child then holds it as well, and the lock ends with the last process that
    does. A run that has outlived its worker so keeps others away.

    Args:
        folder: Local folder (not a network file system), the same for every worker of this machine.
        device_id: The device's UUID, or ``cpu``.
    """

    def __init__(self, folder: Path, device_id: str) -> None:
        self.device_id = device_id
        self.path = folder / (re.sub(r"[^A-Za-z0-9._-]", "_", device_id) + ".lock")
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this process has acquired it and not released it."""
        return self._descriptor is not None

    def fileno(self) -> int:
        """The descriptor that holds the lock.

        Raises:
            ValueError: It is not held.
        """
        if self._descriptor is None:
            raise ValueError(f"the lock of device {self.device_id} is not held")
        return self._descriptor

    def acquire(self, wait_seconds: float | None = None, on_wait: Callable[[str], None] = lambda _holder: None) -> None:
        """Takes the lock; waits while another has it. Taking a held one again does nothing.

        Args:
            wait_seconds: Longest wait; None for ever.
            on_wait: Called once, with who holds it, when there is something to wait for.

        Raises:
            DeviceBusyError: Not free within the wait.
        """
        if self._descriptor is not None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._wait(descriptor, wait_seconds, on_wait)
        except BaseException:
            os.close(descriptor)
            raise
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()}".encode(), 0)
        self._descriptor = descriptor

    def _wait(self, descriptor: int, wait_seconds: float | None, on_wait: Callable[[str], None]) -> None:
        give_up_at = float("inf") if wait_seconds is None else time.monotonic() + wait_seconds
        told = False
        while not _try_lock(descriptor):
            holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace") or "another process"
            if not told:
                on_wait(f"device {self.device_id} is in use by a run of {holder}")
                told = True
            if time.monotonic() >= give_up_at:
                raise DeviceBusyError(f"device {self.device_id} is still in use by a run of {holder}")
            time.sleep(RETRY_SECONDS)

    def release(self) -> None:
        """Lets go of this process's share. A child that holds the descriptor goes on holding the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)  # never LOCK_UN: it would unlock for the child as well
            self._descriptor = None

    def __enter__(self) -> DeviceLock:
        self.acquire()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.release()


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Release:
    """How a device gave its memory back after a run.

    Attributes:
        free: Whether use came back to the baseline (plus tolerance) within the limit; else the device is busy
            (``infra/busy_device``): a run would measure another's memory.
        waited_seconds: How long that took, or the limit.
        used_bytes: The last reading; None where use cannot be read (then ``free`` is True: nothing says otherwise).
    """

    free: bool
    waited_seconds: float
    used_bytes: int | None


def wait_until_free(
    used_bytes: Callable[[], int | None],
    baseline_bytes: int,
    *,
    tolerance_bytes: int = 256 * 1024**2,
    limit_seconds: float = 120.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Release:
    """Waits until a device's used memory is back at its baseline: drivers free memory some time after a process's exit.

    Args:
        used_bytes: Reads the device's memory in use; None when that is not known.
        baseline_bytes: Its use before the run.
        tolerance_bytes: So much more counts as free.
        limit_seconds: Longest wait.
        clock: Seconds, rising.
        sleep: Waits for so many seconds.
    """
    begun = clock()
    while True:
        used, waited = used_bytes(), clock() - begun
        free = used is None or used <= baseline_bytes + tolerance_bytes
        if free or waited >= limit_seconds:
            return Release(free=free, waited_seconds=waited, used_bytes=used)
        sleep(min(0.25, limit_seconds - waited))
