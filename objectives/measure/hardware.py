"""What a number belongs to: the machine, its devices, their state. The door to :mod:`host` and :mod:`nvidia`.

Importing this touches neither torch nor CUDA nor a device; only :func:`describe` of a CUDA device initialises CUDA.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objectives.measure.host import (
    cores,
    cpu_model,
    kernel_kills,
    load_average,
    memory_available_bytes,
    memory_limit_bytes,
    read_text,
    shared_memory_bytes,
    versions,
)
from objectives.measure.nvidia import (
    Nvml,
    as_mapping,
    cuda_uuid,
    read_nvml,
    sample_clocks,
    summarise_clocks,
    visible_devices,
)
from objectives.measure.proc import CpuTimes, cpu_times, neighbours, swap_bytes

if TYPE_CHECKING:
    import torch

__all__ = [
    "Conditions",
    "conditions",
    "cores",
    "cpu_model",
    "describe",
    "kernel_kills",
    "list_devices",
    "load_average",
    "memory_available_bytes",
    "memory_limit_bytes",
    "shared_memory_bytes",
    "versions",
    "visible_devices",
]


def list_devices(root: str = "/", library: Any = None) -> list[dict[str, Any]]:
    """Everything this machine could train on, the CPU last, as plain data. Starts no CUDA and imports no torch.

    NVIDIA devices come from NVML; where it does not answer but the driver lists boards under ``/proc/driver/nvidia``,
    from there, with the reason and no sizes. A device that ``CUDA_VISIBLE_DEVICES`` hides has ``visible`` False.

    Args:
        root: Where /proc and /sys are.
        library: Stands in for ``pynvml`` in tests.
    """
    nvml = read_nvml(library)
    return [*_nvidia_devices(nvml, root), describe_cpu(root)]


def _nvidia_devices(nvml: Nvml, root: str) -> list[dict[str, Any]]:
    if not nvml.devices:
        return _devices_of_driver(root, nvml.reason)
    order = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    shown, remark = visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"), nvml.devices, pci_order=order)
    extra = {"driver": nvml.driver, "reason": remark}
    return [as_mapping(device) | extra | {"visible": device in shown} for device in nvml.devices]


def _devices_of_driver(root: str, reason: str | None) -> list[dict[str, Any]]:
    """Boards as the kernel driver lists them, one file ``information`` per PCI bus address."""
    version = read_text(Path(root, "proc/driver/nvidia/version"))
    found = []
    for path in sorted(Path(root, "proc/driver/nvidia/gpus").glob("*/information")):
        lines = (line.partition(":") for line in (read_text(path) or "").splitlines())
        facts = {name.strip(): value.strip() for name, _, value in lines}
        found.append(
            {
                "kind": "cuda",
                "uuid": facts.get("GPU UUID"),
                "name": facts.get("Model", "NVIDIA device"),
                "total_memory_bytes": None,
                "pci_bus_id": facts.get("Bus Location"),
                "capability": None,
                "mig": None,
                "parent_uuid": None,
                "driver": version.splitlines()[0] if version else None,
                "reason": reason,
                "visible": None,
            }
        )
    return found


def describe_cpu(root: str = "/") -> dict[str, Any]:
    """This machine as a training device: its name, cores and memory as the control group leaves them."""
    return {
        "kind": "cpu",
        "uuid": "",
        "name": cpu_model(root) or "CPU",
        "total_memory_bytes": memory_limit_bytes(root),
        "available_memory_bytes": memory_available_bytes(root),
        "cores": cores(root),
        "shared_memory_bytes": shared_memory_bytes(),
        "reason": None,
        "visible": True,
    }


def describe(device: torch.device | str = "cpu") -> dict[str, Any]:
    """The device of a run and the software around it, as plain data. Initialises CUDA for a CUDA device.

    ``uuid`` is NVML's spelling (empty for the CPU); figures that cannot be had are None.
    """
    if not str(device).startswith("cuda"):
        return describe_cpu() | {"driver": None, "capability": None, "mig": False, "versions": versions()}
    import torch

    properties = torch.cuda.get_device_properties(torch.device(device))
    uuid, nvml = cuda_uuid(device), read_nvml()
    known = next((as_mapping(one) for one in nvml.devices if one.uuid == uuid), {})
    return {
        "kind": "cuda",
        "pci_bus_id": None,
        "parent_uuid": None,
        **known,
        "uuid": uuid,
        "name": properties.name,
        "total_memory_bytes": properties.total_memory,
        "capability": (properties.major, properties.minor),
        "mig": uuid.startswith("MIG-"),
        "cores": cores(),
        "shared_memory_bytes": shared_memory_bytes(),
        "driver": nvml.driver,
        "reason": nvml.reason,
        "versions": versions() | {"cuda": torch.version.cuda},
    }


SAMPLE_SECONDS = 1.0
"""The device's state is looked at once a second at most: it changes slowly, and a look costs milliseconds."""


class Conditions:
    """What went on around a run: begin it, sample now and then (between blocks), and ask at the end."""

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._uuid = cuda_uuid(device) if str(device).startswith("cuda") else ""
        self._before: CpuTimes | None = cpu_times()
        self._samples = [sample_clocks(self._uuid)]
        self._looked = time.monotonic()

    def sample(self) -> None:
        """Looks at the device's clocks, temperature and throttling, at most once a second (never on a CPU)."""
        if self._uuid and time.monotonic() - self._looked >= SAMPLE_SECONDS:
            self._look()

    def _look(self) -> None:
        self._samples.append(sample_clocks(self._uuid))
        self._looked = time.monotonic()

    def to_mapping(self) -> dict[str, Any]:
        """Clocks over the samples, the neighbours' share of the cores since the beginning, load and swap now."""
        self._look()
        after = cpu_times()
        shares = neighbours(self._before, after) if self._before and after else {}
        return {
            **summarise_clocks(self._samples),
            "neighbour_share": shares.get("neighbour_share"),
            "stolen_share": shares.get("stolen_share"),
            "load_average": load_average(),
            "swap_bytes": swap_bytes(),
        }


def conditions(device: torch.device | str = "cpu") -> dict[str, Any]:
    """One look at the device and the machine now. For shares over a time, make a :class:`Conditions` before it."""
    return Conditions(device).to_mapping()
