"""NVIDIA devices through NVML: which there are, which of them this process sees, how they do. Never touches CUDA.

NVML numbers devices by PCI bus and ignores ``CUDA_VISIBLE_DEVICES``; CUDA may number them by speed. So a device is told
by its UUID alone, never by an index of the other library (case H09). Where NVML is broken or absent every figure is
None and the reason says why (case A35): a missing sensor is no reason to stop a run.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

THROTTLE_REASONS: Mapping[int, str] = {
    0x04: "power_cap",
    0x08: "hardware_slowdown",
    0x20: "thermal",
    0x40: "hardware_thermal",
    0x80: "power_brake",
}
"""NVML's clock event reasons that mean "slower than it could" (nvml.h, nvmlClocksEventReasons); idle and the user's
own clock settings are not among them."""


@dataclass(frozen=True, kw_only=True)
class NvidiaDevice:
    """One device, or one MIG instance of it.

    Attributes:
        uuid: ``GPU-...``, or ``MIG-...`` for an instance.
        parent_uuid: For an instance the board's UUID.
        pci_bus_id: As NVML writes it, ``00000000:3B:00.0``.
        mig: Whether this is an instance: energy, power and clocks are then the board's and not told.
    """

    uuid: str
    name: str
    total_memory_bytes: int
    pci_bus_id: str | None = None
    capability: tuple[int, int] | None = None
    mig: bool = False
    parent_uuid: str | None = None


@dataclass(frozen=True, kw_only=True)
class Nvml:
    """What NVML answered: its devices in PCI order, the driver's version, or why there is no answer."""

    devices: tuple[NvidiaDevice, ...] = ()
    driver: str | None = None
    reason: str | None = None


@contextmanager
def opened(library: Any = None) -> Iterator[Any]:
    """NVML, initialised, shut down at the end. ``library`` stands in for the module ``pynvml`` in tests.

    Raises:
        Exception: Whatever NVML raises when it is absent, too old for its driver, or locked away.
    """
    nvml = importlib.import_module("pynvml") if library is None else library
    nvml.nvmlInit()
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _asked(question: Callable[..., Any], *arguments: Any) -> Any:
    """NVML's answer, or None where this device or driver does not know."""
    try:
        return question(*arguments)
    except Exception:  # noqa: BLE001 - NVML's own error classes are made at run time; a missing figure is None
        return None


def read_nvml(library: Any = None) -> Nvml:
    """Every device and MIG instance NVML knows. Never raises."""
    try:
        with opened(library) as nvml:
            boards = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
            found = [device for board in boards for device in _devices_of(nvml, board)]
            driver = _asked(nvml.nvmlSystemGetDriverVersion)
            return Nvml(devices=tuple(found), driver=None if driver is None else _text(driver))
    except Exception as error:  # noqa: BLE001 - absent, broken or mismatched: the reason is the answer
        return Nvml(reason=f"NVML: {error or type(error).__name__}")


def _devices_of(nvml: Any, board: Any) -> list[NvidiaDevice]:
    whole = _device(nvml, board)
    if not (_asked(nvml.nvmlDeviceGetMigMode, board) or (0,))[0]:
        return [whole]
    count = _asked(nvml.nvmlDeviceGetMaxMigDeviceCount, board) or 0
    parts = (_asked(nvml.nvmlDeviceGetMigDeviceHandleByIndex, board, index) for index in range(count))
    return [_device(nvml, part, whole) for part in parts if part is not None]


def _device(nvml: Any, handle: Any, board: NvidiaDevice | None = None) -> NvidiaDevice:
    pci = _asked(nvml.nvmlDeviceGetPciInfo, handle)
    capability = _asked(nvml.nvmlDeviceGetCudaComputeCapability, handle)
    return NvidiaDevice(
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(nvml.nvmlDeviceGetName(handle)),
        total_memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        pci_bus_id=board.pci_bus_id if board else (None if pci is None else _text(pci.busId)),
        capability=board.capability if board else (tuple(capability) if capability else None),
        mig=board is not None,
        parent_uuid=board.uuid if board else None,
    )


def visible_devices(
    value: str | None, devices: Sequence[NvidiaDevice], *, pci_order: bool = False
) -> tuple[tuple[NvidiaDevice, ...], str | None]:
    """Which devices a value of ``CUDA_VISIBLE_DEVICES`` leaves, in CUDA's order, and a remark when it leaves doubt.

    As CUDA reads it: unset shows all; entries are indices, UUIDs or unique beginnings of them; the first entry that
    names nothing ends the list (so ``""``, ``-1`` and ``NoDevFiles`` show none); a device named twice shows none.

    Args:
        value: The variable's value; None when it is not set.
        devices: In PCI order.
        pci_order: Whether ``CUDA_DEVICE_ORDER=PCI_BUS_ID``. Without it an index among unlike devices says nothing sure.
    """
    if value is None:
        return tuple(devices), None
    found: list[NvidiaDevice] = []
    for entry in (part.strip() for part in value.split(",")):
        match = _named(entry, devices)
        if match is None:
            return tuple(found), f"CUDA_VISIBLE_DEVICES={value!r}: {entry!r} names no device, and ends the list"
        if match in found:
            return (), f"CUDA_VISIBLE_DEVICES={value!r} names {match.uuid} twice: CUDA then shows none"
        found.append(match)
    by_index = any(part.strip().isdigit() for part in value.split(","))
    doubt = by_index and not pci_order and len({device.name for device in devices}) > 1
    remark = "indices among unlike devices follow CUDA's own order: name devices by UUID" if doubt else None
    return tuple(found), remark


def _named(entry: str, devices: Sequence[NvidiaDevice]) -> NvidiaDevice | None:
    if entry.isdigit():
        boards = [device for device in devices if not device.mig]
        return boards[int(entry)] if int(entry) < len(boards) else None
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    matches = [device for device in devices if device.uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


@dataclass(frozen=True, kw_only=True)
class ClockSample:
    """One look at a device's state; None for what it does not tell (all of it on MIG).

    Attributes:
        sm_clock_megahertz: Clock of the compute units.
        throttle_reasons: Why it runs slower than it could; empty when it does not.
    """

    sm_clock_megahertz: int | None = None
    memory_clock_megahertz: int | None = None
    temperature_celsius: int | None = None
    power_watts: float | None = None
    throttle_reasons: tuple[str, ...] | None = None


def sample_clocks(uuid: str, library: Any = None) -> ClockSample:
    """The state of the device with that UUID now. Never raises; without NVML (or on MIG) every figure is None."""
    if not uuid.startswith("GPU-"):
        return ClockSample()
    try:
        with opened(library) as nvml:
            return _sample(nvml, nvml.nvmlDeviceGetHandleByUUID(uuid))
    except Exception:  # noqa: BLE001 - see read_nvml
        return ClockSample()


def _sample(nvml: Any, handle: Any) -> ClockSample:
    power = _asked(nvml.nvmlDeviceGetPowerUsage, handle)
    reasons = _asked(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    return ClockSample(
        sm_clock_megahertz=_asked(nvml.nvmlDeviceGetClockInfo, handle, 1),
        memory_clock_megahertz=_asked(nvml.nvmlDeviceGetClockInfo, handle, 2),
        temperature_celsius=_asked(nvml.nvmlDeviceGetTemperature, handle, 0),
        power_watts=None if power is None else power / 1000,
        throttle_reasons=None if reasons is None else reasons_in(reasons),
    )


def reasons_in(bits: int) -> tuple[str, ...]:
    """The throttle reasons set in NVML's bit field."""
    return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)


def summarise_clocks(samples: Sequence[ClockSample]) -> dict[str, Any]:
    """What a run's samples say together. Every sample counts: throttling is flagged, never filtered away (case H06).

    ``throttled_share`` is None when no sample could tell; ``throttled`` is True from one throttled sample in ten on.
    """
    told = [sample.throttle_reasons for sample in samples if sample.throttle_reasons is not None]
    share = sum(bool(reasons) for reasons in told) / len(told) if told else None
    figures = ("sm_clock_megahertz", "memory_clock_megahertz", "temperature_celsius", "power_watts")
    means = {name: _mean([getattr(sample, name) for sample in samples]) for name in figures}
    return {
        **means,
        "throttled_share": share,
        "throttled": None if share is None else share >= 0.1,
        "throttle_reasons": sorted({reason for reasons in told for reason in reasons}) if told else None,
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def energy_millijoules(uuid: str, library: Any = None) -> int | None:
    """The board's energy counter since its driver loaded; None on MIG, on boards before Volta, and without NVML."""
    if not uuid.startswith("GPU-"):
        return None
    try:
        with opened(library) as nvml:
            return int(nvml.nvmlDeviceGetTotalEnergyConsumption(nvml.nvmlDeviceGetHandleByUUID(uuid)))
    except Exception:  # noqa: BLE001 - see read_nvml
        return None


def cuda_uuid(device: torch.device | str) -> str:
    """The UUID of a CUDA device as NVML writes it: the one thing both libraries agree on. Initialises CUDA."""
    import torch

    properties = torch.cuda.get_device_properties(torch.device(device))
    bare = str(properties.uuid)
    return (
        f"{'MIG' if 'MIG' in properties.name.split() else 'GPU'}-{bare}" if bare[:4] not in ("GPU-", "MIG-") else bare
    )


def used_bytes_before_context(device: torch.device | str) -> int | None:
    """Bytes others hold on the device, read while this process has no context there; None after that and without NVML.

    Asking CUDA for a device's properties makes no context; the first tensor does.
    """
    import torch

    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)  # only CUDA builds have it
    if has_context is None or has_context(torch.device(device).index or 0):
        return None
    return used_bytes(cuda_uuid(device))


def used_bytes(uuid: str) -> int | None:
    """Bytes in use on a device, everybody's; None where NVML does not say."""
    try:
        with opened() as nvml:
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            return int(nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2).used)
    except Exception:  # noqa: BLE001 - see read_nvml
        return None


def as_mapping(device: NvidiaDevice) -> dict[str, Any]:
    """Plain data, as ``list_devices`` gives it."""
    return {"kind": "cuda", **asdict(device)}
