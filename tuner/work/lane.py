"""A lane: one device with what it takes to run children on it, one at a time."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from objectives.measure.hardware import list_devices
from objectives.measure.nvidia import used_bytes
from tuner.errors import MachineError, TightfitError
from tuner.work.device_lock import DeviceLock, wait_until_free
from tuner.work.launcher import Launcher
from tuner.work.runner import Deadlines, RunEnd, Watch, execute

if TYPE_CHECKING:
    from objectives.trial.protocol import RunRequest


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device trials run on.

    Attributes:
        name: What a front may not mix: the product's name, or the CPU's model with its cores.
        uuid: Empty for the CPU.
        total_memory_bytes: Device memory; for the CPU the smaller of RAM and control-group limit.
        threads: CPU threads a child may compute with.
        slot: Which part of a CPU that is divided for testing the service; empty for a device as it is.
    """

    kind: Literal["cpu", "cuda"]
    name: str
    uuid: str = ""
    total_memory_bytes: int = 0
    threads: int = 1
    slot: str = ""

    @property
    def lock_name(self) -> str:
        """What the lock of its runs is called: its UUID, or the CPU with its slot."""
        return self.uuid or f"{self.kind}{'-' if self.slot else ''}{self.slot}"


def choose_devices(wanted: str, listed: list[dict[str, Any]] | None = None) -> tuple[Device, ...]:
    """The devices a study on this machine uses: all visible GPUs of the first one's kind, else the CPU.

    Args:
        wanted: ``auto``, ``cpu`` or ``cuda``.
        listed: What the machine has; None looks.

    Raises:
        TightfitError: A GPU is wanted and none can be used; the message says what was found.
    """
    found = list_devices() if listed is None else listed
    usable = [one for one in found if one["kind"] == "cuda" and one["visible"] and one["total_memory_bytes"]]
    cpu = next(one for one in found if one["kind"] == "cpu")
    if wanted == "cpu" or (wanted == "auto" and not usable):
        return (cpu_device(cpu),)
    if not usable:
        reasons = [f"{one['name']}: {one.get('reason') or 'not visible'}" for one in found if one["kind"] == "cuda"]
        raise TightfitError(f"device: cuda is asked for, and no GPU can be used here ({'; '.join(reasons) or 'none'})")
    same = [one for one in usable if one["name"] == usable[0]["name"]]
    threads = max(1, int(cpu["cores"]) // len(same))
    return tuple(gpu_device(one, threads) for one in same)


def cpu_device(facts: Mapping[str, Any]) -> Device:
    """The whole CPU, from its entry in the list of devices."""
    cores = int(facts["cores"])
    return Device(
        kind="cpu",
        name=f"{facts['name']} ({cores} cores)",
        total_memory_bytes=int(facts["total_memory_bytes"]),
        threads=cores,
    )


def gpu_device(facts: Mapping[str, Any], threads: int) -> Device:
    """A GPU, from its entry in the list of devices, with so many of the host's cores."""
    return Device(
        kind="cuda",
        name=str(facts["name"]),
        uuid=str(facts["uuid"]),
        total_memory_bytes=int(facts["total_memory_bytes"]),
        threads=threads,
    )


class Lane:
    """Runs requests on one device. Keeps a warm launcher per process-start environment; never two children at once.

    Args:
        device: The device.
        preload: Modules the launchers import before the first child.
        path: Folder of the user's own modules.
        folder: Local folder for the device's lock and the runs' logs.
    """

    def __init__(self, device: Device, *, preload: tuple[str, ...], path: str, folder: Path) -> None:
        self.device = device
        self._preload, self._path, self._folder = preload, path, folder
        self._launchers: dict[tuple[tuple[str, str], ...], Launcher] = {}
        self._lock = DeviceLock(folder / "locks", device.lock_name)
        self._used_before: int | None = None

    def run(
        self,
        request: RunRequest,
        deadlines: Deadlines,
        *,
        environment: Mapping[str, str],
        watch: Watch = lambda _event: None,
        cancelled: Callable[[], bool] = lambda: False,
        on_wait: Callable[[str], None] = lambda _holder: None,
        prefix: Sequence[str] = (),
    ) -> RunEnd:
        """Runs one child to its end. Waits first while another process's child holds the device.

        Args:
            request: What the child is to do.
            deadlines: How long it may take.
            environment: Process-start variables.
            watch: Sees every event; a text stops the child for that reason.
            cancelled: Asked now and then; True ends the child as ``cancelled``.
            on_wait: Called once with who holds the device, when there is something to wait for.
            prefix: A command that starts the child's interpreter (a profiler).

        Raises:
            MachineError: The device's memory does not come back, no process can be started, or it was cancelled while
                it waited for the device.
        """
        launcher = self._launcher(environment)
        log_path = self._folder / "logs" / f"{request.run}.log"
        log_path.parent.mkdir(parents=True, exist_ok=True)
        try:
            if not self.acquire(on_wait=on_wait, cancelled=cancelled):
                raise MachineError("it was not started: the wait for its device was given up")
            self._require_free()
            return execute(
                launcher, request, log_path, deadlines, watch=watch, cancelled=cancelled, prefix=prefix, lock=self._lock
            )
        finally:
            self._lock.release()
            log_path.unlink(missing_ok=True)

    def acquire(
        self, *, on_wait: Callable[[str], None] = lambda _holder: None, cancelled: Callable[[], bool] = lambda: False
    ) -> bool:
        """Takes the device for the next run, which :meth:`run` then gives back; False when ``cancelled`` said so."""
        return self._lock.acquire(on_wait=on_wait, cancelled=cancelled)

    def release(self) -> None:
        """Gives the device back without a run."""
        self._lock.release()

    def _require_free(self) -> None:
        """Waits until a GPU's memory is back where it was before the first run: drivers free it late.

        Raises:
            MachineError: It does not come back.
        """
        if self.device.kind != "cuda":
            return
        if self._used_before is None:
            self._used_before = used_bytes(self.device.uuid) or 0
        release = wait_until_free(lambda: used_bytes(self.device.uuid), self._used_before)
        if not release.free:
            raise MachineError(
                f"{self.device.name} ({self.device.uuid}) still has {release.used_bytes} bytes in use "
                f"{release.waited_seconds:.0f} s after the last run's process ended; before the study it had "
                f"{self._used_before}: another program uses it, or the driver lost the memory",
                cause="busy_device",
            )

    def _launcher(self, environment: Mapping[str, str]) -> Launcher:
        key = tuple(sorted(environment.items()))
        if key not in self._launchers:
            self._launchers[key] = Launcher(preload=self._preload, environment=environment, path=self._path)
        return self._launchers[key]

    def close(self) -> None:
        """Ends the launchers; nothing of theirs survives."""
        for launcher in self._launchers.values():
            launcher.close()
        self._launchers.clear()


def new_run_id() -> str:
    """A run's id, made before its child starts."""
    return str(uuid.uuid4())
