"""Which device a worker owns on its host, its share of the cores, and the lock that keeps it its own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from objectives.measure.hardware import list_devices
from objectives.measure.nvidia import read_nvml, visible_devices
from tuner.errors import TightfitError
from tuner.work.device_lock import DeviceBusyError, DeviceLock
from tuner.work.lane import Device, cpu_device, gpu_device

SEAT_WAIT_SECONDS = 5.0
"""A predecessor that was just killed may still be leaving."""


def visible(listed: Sequence[Mapping[str, Any]] | None = None) -> tuple[Device, ...]:
    """The GPUs this process may use, in CUDA's order, each with its share of the cores; empty without one.

    Args:
        listed: What the machine has; None looks.
    """
    found = list_devices() if listed is None else listed
    gpus = {str(one["uuid"]): one for one in found if _is_usable(one)}
    order = _cuda_order() if listed is None else list(gpus)
    cores = int(_cpu(found)["cores"])
    share = max(1, cores // max(1, len(gpus)))
    return tuple(gpu_device(gpus[uuid], share) for uuid in order if uuid in gpus)


def worker_device(asked: str, slots: int = 1, listed: Sequence[Mapping[str, Any]] | None = None) -> Device:
    """The device a worker is to own.

    Args:
        asked: ``auto`` (the only GPU, else the CPU), ``cpu``, ``cuda``, ``cuda:1``, an index, or a UUID's beginning.
        slots: Into how many the CPU is divided, for testing the service's own throughput; 1 for measuring.
        listed: What the machine has; None looks.

    Raises:
        TightfitError: There is no such device; the message says what there is.
    """
    gpus = visible(listed)
    if asked == "cpu" or (asked == "auto" and not gpus):
        return _cpu_slot(_cpu(list_devices() if listed is None else listed), slots)
    if not gpus:
        raise TightfitError(f"--device {asked}: no GPU can be used here; `tuner devices` says why")
    wanted = "0" if asked in ("auto", "cuda") and len(gpus) == 1 else asked.removeprefix("cuda:")
    matches = [gpus[int(wanted)]] if wanted.isdigit() and int(wanted) < len(gpus) else _by_uuid(wanted, gpus)
    if len(matches) == 1:
        return matches[0]
    there = ", ".join(f"cuda:{number} {one.uuid} ({one.name})" for number, one in enumerate(gpus))
    raise TightfitError(f"--device {asked} names {len(matches) or 'no'} of these: {there}. Or use --devices all")


def _by_uuid(wanted: str, gpus: Sequence[Device]) -> list[Device]:
    names = (wanted, f"GPU-{wanted}", f"MIG-{wanted}")
    return [one for one in gpus if len(wanted) >= 4 and one.uuid.lower().startswith(tuple(map(str.lower, names)))]


def take_seat(folder: Path, device: Device, slots: int = 1) -> tuple[Device, DeviceLock]:
    """Makes this process the device's worker for as long as it lives.

    Args:
        folder: The data folder of this host.
        device: As chosen; of a CPU that is divided, the first free slot is taken.
        slots: As for :func:`worker_device`.

    Returns:
        The device, and the lock to keep.

    Raises:
        TightfitError: Another worker of this host owns it.
    """
    if device.kind == "cpu" and slots > 1:
        return _free_slot(folder, device, slots)
    lock = DeviceLock(folder / "locks" / "workers", device.uuid or device.kind)
    try:
        lock.acquire(wait_seconds=SEAT_WAIT_SECONDS)
    except DeviceBusyError as error:
        raise TightfitError(
            f"another worker of this machine owns {device.name}: {error}. One worker a device; to test the service's "
            "own throughput on a CPU, give every worker --slots N"
        ) from error
    return device, lock


def _free_slot(folder: Path, device: Device, slots: int) -> tuple[Device, DeviceLock]:
    for number in range(slots):
        made = replace(device, slot=f"slot-{number}-of-{slots}")
        lock = DeviceLock(folder / "locks" / "workers", f"cpu-{made.slot}")
        try:
            lock.acquire(wait_seconds=0.0)
        except DeviceBusyError:
            continue
        return made, lock
    raise TightfitError(f"all {slots} slots of this machine's CPU have a worker")


def _cpu_slot(facts: Mapping[str, Any], slots: int) -> Device:
    whole = cpu_device(facts)
    if slots == 1:
        return whole
    share = max(1, whole.threads // slots)
    return replace(
        whole,
        name=f"{facts['name']} ({share} of {whole.threads} cores, {slots} slots)",
        threads=share,
        total_memory_bytes=whole.total_memory_bytes // slots,
    )


def _is_usable(one: Mapping[str, Any]) -> bool:
    return one["kind"] == "cuda" and bool(one["visible"]) and bool(one["total_memory_bytes"])


def _cpu(found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return next(one for one in found if one["kind"] == "cpu")


def _cuda_order() -> list[str]:
    """UUIDs in the order in which CUDA numbers the visible devices."""
    by_bus = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    shown, _ = visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"), read_nvml().devices, pci_order=by_bus)
    return [device.uuid for device in shown]
