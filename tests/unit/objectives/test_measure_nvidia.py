"""NVIDIA devices told by UUID, on fake libraries: reversed orders, broken drivers, MIG, throttling."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from objectives.measure.energy import EnergyMeter, joules
from objectives.measure.hardware import list_devices
from objectives.measure.nvidia import (
    ClockSample,
    NvidiaDevice,
    energy_millijoules,
    read_nvml,
    reasons_in,
    sample_clocks,
    summarise_clocks,
    visible_devices,
)

SLOW = NvidiaDevice(uuid="GPU-aaaa1111-0000", name="NVIDIA T4", total_memory_bytes=16, pci_bus_id="00000000:01:00.0")
FAST = NvidiaDevice(uuid="GPU-bbbb2222-0000", name="NVIDIA A100", total_memory_bytes=80, pci_bus_id="00000000:41:00.0")
PART = NvidiaDevice(
    uuid="MIG-cccc3333-0000", name="NVIDIA A100 MIG 1g.10gb", total_memory_bytes=10, mig=True, parent_uuid=FAST.uuid
)


@dataclass
class FakeNvml:
    """What pynvml answers for boards in PCI order. Without an entry in ``state`` a board knows nothing."""

    boards: tuple[NvidiaDevice, ...] = (SLOW, FAST)
    parts: dict[str, tuple[NvidiaDevice, ...]] = field(default_factory=dict)
    state: dict[str, dict[str, Any]] = field(default_factory=dict)
    open: int = 0

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"590.01"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> NvidiaDevice:
        return self.boards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> NvidiaDevice:
        return next(board for board in self.boards if board.uuid == uuid)

    def nvmlDeviceGetMigMode(self, board: NvidiaDevice) -> tuple[int, int]:
        return (1, 1) if board.uuid in self.parts else (0, 0)

    def nvmlDeviceGetMaxMigDeviceCount(self, _board: NvidiaDevice) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, board: NvidiaDevice, index: int) -> NvidiaDevice:
        return self.parts[board.uuid][index]

    def nvmlDeviceGetUUID(self, board: NvidiaDevice) -> str:
        return board.uuid

    def nvmlDeviceGetName(self, board: NvidiaDevice) -> bytes:
        return board.name.encode()

    def nvmlDeviceGetMemoryInfo(self, board: NvidiaDevice) -> SimpleNamespace:
        return SimpleNamespace(total=board.total_memory_bytes)

    def nvmlDeviceGetPciInfo(self, board: NvidiaDevice) -> SimpleNamespace:
        return SimpleNamespace(busId=(board.pci_bus_id or "").encode())

    def nvmlDeviceGetCudaComputeCapability(self, _board: NvidiaDevice) -> tuple[int, int]:
        return (8, 0)

    def nvmlDeviceGetClockInfo(self, board: NvidiaDevice, kind: int) -> int:
        return int(self.state[board.uuid]["clocks"][kind - 1])

    def nvmlDeviceGetTemperature(self, board: NvidiaDevice, _sensor: int) -> int:
        return int(self.state[board.uuid]["temperature"])

    def nvmlDeviceGetPowerUsage(self, board: NvidiaDevice) -> int:
        return int(self.state[board.uuid]["power"])

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, board: NvidiaDevice) -> int:
        return int(self.state[board.uuid]["reasons"])

    def nvmlDeviceGetTotalEnergyConsumption(self, board: NvidiaDevice) -> int:
        return int(self.state[board.uuid]["energy"])


class Broken:
    def nvmlInit(self) -> None:
        raise RuntimeError("Driver/library version mismatch")


class TestListing:
    def test_boards_in_pci_order_with_their_driver(self) -> None:
        library = FakeNvml()
        found = read_nvml(library)
        assert [device.uuid for device in found.devices] == [SLOW.uuid, FAST.uuid]
        assert found.driver == "590.01"
        assert library.open == 0, "NVML is shut down again"

    def test_the_instances_of_a_divided_board_stand_for_it(self) -> None:
        found = read_nvml(FakeNvml(parts={FAST.uuid: (PART,)})).devices
        assert [device.uuid for device in found] == [SLOW.uuid, PART.uuid]
        assert found[1].mig
        assert found[1].parent_uuid == FAST.uuid
        assert found[1].total_memory_bytes == 10

    @pytest.mark.case("A35")
    def test_a_broken_nvml_is_a_reason_not_an_error(self) -> None:
        found = read_nvml(Broken())
        assert found.devices == ()
        assert "version mismatch" in str(found.reason)
        assert sample_clocks(SLOW.uuid, Broken()) == ClockSample()
        assert energy_millijoules(SLOW.uuid, Broken()) is None

    @pytest.mark.case("A35")
    def test_boards_are_listed_from_the_kernel_driver_where_nvml_is_broken(self, tmp_path: Path) -> None:
        folder = tmp_path / "proc/driver/nvidia/gpus/0000:3b:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(
            "Model: \t\t NVIDIA H100\nIRQ:   \t 87\nGPU UUID: \t GPU-ab12\nBus Location: \t 0000:3b:00.0\n"
        )
        board, cpu = list_devices(str(tmp_path), Broken())
        assert (board["name"], board["uuid"], board["pci_bus_id"]) == ("NVIDIA H100", "GPU-ab12", "0000:3b:00.0")
        assert board["total_memory_bytes"] is None
        assert "version mismatch" in board["reason"]
        assert cpu["kind"] == "cpu"

    def test_hidden_devices_are_listed_as_hidden(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", FAST.uuid)
        found = {device["uuid"]: device["visible"] for device in list_devices(str(tmp_path), FakeNvml())}
        assert found == {SLOW.uuid: False, FAST.uuid: True, "": True}


class TestVisible:
    DEVICES = (SLOW, FAST, PART)

    @pytest.mark.parametrize(
        ("value", "shown"),
        [
            (None, (SLOW, FAST, PART)),
            ("", ()),
            ("-1", ()),
            ("NoDevFiles", ()),
            ("0,-1,1", (SLOW,)),
            ("1,0", (FAST, SLOW)),
            ("7", ()),
            ("GPU-bbbb", (FAST,)),
            ("GPU-", ()),
            ("MIG-cccc3333-0000", (PART,)),
            (f"{FAST.uuid}, {SLOW.uuid}", (FAST, SLOW)),
            ("0,0", ()),
        ],
    )
    def test_as_cuda_reads_it(self, value: str | None, shown: tuple[NvidiaDevice, ...]) -> None:
        assert visible_devices(value, self.DEVICES, pci_order=True)[0] == shown

    def test_what_leaves_doubt_is_said(self) -> None:
        assert "names no device" in str(visible_devices("NoDevFiles", self.DEVICES)[1])
        assert "twice" in str(visible_devices("1,1", self.DEVICES)[1])
        assert "by UUID" in str(visible_devices("1,0", (SLOW, FAST))[1])
        assert visible_devices("1,0", (SLOW, FAST), pci_order=True)[1] is None
        assert visible_devices("1,0", (FAST, replace(FAST, uuid="GPU-dddd")))[1] is None
        assert visible_devices(None, self.DEVICES)[1] is None


STATE = {
    SLOW.uuid: {"clocks": (300, 405), "temperature": 40, "power": 20_000, "reasons": 0x1, "energy": 5},
    FAST.uuid: {"clocks": (1410, 1593), "temperature": 70, "power": 400_000, "reasons": 0x4 | 0x20, "energy": 9000},
}


class TestState:
    @pytest.mark.case("H09")
    def test_the_device_is_found_by_uuid_whatever_the_order(self) -> None:
        for boards in ((SLOW, FAST), (FAST, SLOW)):
            found = sample_clocks(FAST.uuid, FakeNvml(boards=boards, state=STATE))
            assert (found.sm_clock_megahertz, found.power_watts) == (1410, 400.0)
            assert found.throttle_reasons == ("power_cap", "thermal")
            assert energy_millijoules(FAST.uuid, FakeNvml(boards=boards, state=STATE)) == 9000

    def test_idle_is_no_throttling(self) -> None:
        assert reasons_in(0x1) == ()
        assert reasons_in(0x2) == ()

    def test_a_missing_sensor_is_none_and_the_others_stay(self) -> None:
        state = {FAST.uuid: {"clocks": (1410, 1593), "reasons": 0}}
        found = sample_clocks(FAST.uuid, FakeNvml(state=state))
        assert found == ClockSample(sm_clock_megahertz=1410, memory_clock_megahertz=1593, throttle_reasons=())

    def test_an_instance_has_no_clocks_of_its_own(self) -> None:
        assert sample_clocks(PART.uuid, FakeNvml(state=STATE)) == ClockSample()
        assert energy_millijoules(PART.uuid, FakeNvml(state=STATE)) is None

    @pytest.mark.case("H06")
    def test_all_samples_throttled_is_a_value_with_a_flag(self) -> None:
        samples = [ClockSample(sm_clock_megahertz=clock, throttle_reasons=("power_cap",)) for clock in (1200, 1300)]
        found = summarise_clocks(samples)
        assert found["sm_clock_megahertz"] == 1250
        assert found["throttled"] is True
        assert found["throttled_share"] == 1.0
        assert found["throttle_reasons"] == ["power_cap"]

    def test_no_samples_are_none(self) -> None:
        assert summarise_clocks([])["throttled"] is None
        assert set(summarise_clocks([ClockSample()]).values()) == {None}


class TestEnergy:
    def test_a_window_at_the_mean_power(self) -> None:
        assert joules(1_000_000, 4_000_000, elapsed=10.0, window_seconds=10.0) == 3000.0
        assert joules(0, 3_000_000, elapsed=10.0, window_seconds=8.0) == pytest.approx(2400)

    @pytest.mark.parametrize(
        ("start", "end", "elapsed", "window"),
        [(None, 5, 10, 10), (5, None, 10, 10), (0, 1000, 4.9, 4.9), (10, 5, 10, 10), (0, 5, 0.0, 10)],
    )
    def test_what_cannot_be_told_is_none(
        self, start: int | None, end: int | None, elapsed: float, window: float
    ) -> None:
        assert joules(start, end, elapsed=elapsed, window_seconds=window) is None

    def test_a_cpu_has_no_counter(self) -> None:
        meter = EnergyMeter("cpu")
        meter.stop()
        assert meter.joules(10.0) is None
