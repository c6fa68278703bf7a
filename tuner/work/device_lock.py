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
OWN_END_SECONDS = 2.0
"""So long the last process of one's own run may take to let go before that is told."""


class DeviceBusyError(Exception):
    """Another process's run still holds the device after the wait. Its text names the holder."""


class DeviceLock:
    """A file lock (flock) per device, given in turn.

    Hand it to :meth:`Launcher.start`: the child then holds it as well, and the lock ends with the last process that
    does. A run that has outlived its worker so keeps others away.

    Who wants the device first takes its *turn* (a second lock) and keeps that until it has the device: whoever ends a
    run and wants the next one at once lines up behind those who wait, so that two studies on one device alternate.

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

    def acquire(
        self,
        wait_seconds: float | None = None,
        on_wait: Callable[[str], None] = lambda _holder: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Takes the lock; waits while another has it. Taking a held one again does nothing.

        Args:
            wait_seconds: Longest wait; None for ever.
            on_wait: Called once, with who holds it, when there is something to wait for.
            cancelled: Asked while it waits; True gives up.

        Returns:
            Whether it is held now; False only when it was cancelled.

        Raises:
            DeviceBusyError: Not free within the wait.
        """
        if self._descriptor is not None:
            return True
        self.path.parent.mkdir(parents=True, exist_ok=True)
        turn, device = _open(self.path.with_suffix(".turn")), _open(self.path)
        try:
            held = _Wait(self.device_id, device, wait_seconds, on_wait, cancelled).until_both(turn)
        except BaseException:
            os.close(device)
            raise
        finally:
            os.close(turn)
        if not held:
            os.close(device)
            return False
        os.ftruncate(device, 0)
        os.pwrite(device, f"process {os.getpid()}".encode(), 0)
        self._descriptor = device
        return True

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


class _Wait:
    """One wait for a device: its turn first, then the device itself."""

    def __init__(
        self,
        device_id: str,
        device: int,
        wait_seconds: float | None,
        on_wait: Callable[[str], None],
        cancelled: Callable[[], bool],
    ) -> None:
        self._device_id, self._device, self._on_wait, self._cancelled = device_id, device, on_wait, cancelled
        self._begun, self._told = time.monotonic(), False
        self._give_up_at = float("inf") if wait_seconds is None else self._begun + wait_seconds

    def until_both(self, turn: int) -> bool:
        return self._until(turn) and self._until(self._device)

    def _until(self, descriptor: int) -> bool:
        while not _try_lock(descriptor):
            if self._cancelled():
                return False
            self._tell()
            if time.monotonic() >= self._give_up_at:
                raise DeviceBusyError(f"device {self._device_id} is still in use by {self._holder()}")
            time.sleep(RETRY_SECONDS)
        return True

    def _holder(self) -> str:
        said = os.pread(self._device, 200, 0).decode("utf-8", "replace")
        own = said == f"process {os.getpid()}"
        return (
            "this process's own last run, which has not ended yet" if own else f"a run of {said or 'another process'}"
        )

    def _tell(self) -> None:
        holder = self._holder()
        own = holder.startswith("this process")
        if self._told or (own and time.monotonic() < self._begun + OWN_END_SECONDS):
            return
        self._told = True
        self._on_wait(f"device {self._device_id} is in use by {holder}")


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


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
