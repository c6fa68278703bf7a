"""The measuring instruments on a real CUDA device. Needs ``objectives/`` only."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from objectives.measure.energy import EnergyMeter
from objectives.measure.flops import count_flops_per_unit, mfu, peak_flops_per_second
from objectives.measure.hardware import Conditions, describe, list_devices
from objectives.measure.memory import open_memory
from objectives.measure.nvidia import cuda_uuid, used_bytes_before_context
from objectives.measure.reference_load import ReferenceLoad
from objectives.measure.timing import open_timer

pytestmark = pytest.mark.gpu
MIB = 1024**2
DEVICE = "cuda:0"


def busy(size: int = 8192) -> torch.Tensor:
    matrix = torch.randn(size, size, device=DEVICE)
    return matrix @ matrix


@pytest.mark.case("H01")
def test_events_hold_the_time_of_queued_work() -> None:
    busy()
    torch.cuda.synchronize()
    timer = open_timer(DEVICE)
    begun = time.perf_counter()
    timer.start()
    for _ in range(10):
        busy()
        timer.mark()
    handed_over = time.perf_counter() - begun
    seconds = timer.resolve()
    wall = time.perf_counter() - begun
    assert len(seconds) == 10
    assert handed_over < 0.5 * wall, "the host ran ahead of the device"
    assert 0.7 * wall <= sum(seconds) <= 1.05 * wall


def test_peaks_add_up_and_what_lies_outside_is_the_context() -> None:
    memory = open_memory(DEVICE)
    memory.warm(1)
    memory.start()
    kept = torch.empty(512 * MIB, dtype=torch.uint8, device=DEVICE)
    reading = memory.reading()
    assert reading.peak_allocated_bytes is not None
    assert reading.peak_reserved_bytes is not None
    assert reading.outside_bytes is not None
    assert reading.peak_allocated_bytes >= kept.nbytes
    assert reading.peak_reserved_bytes >= reading.peak_allocated_bytes
    assert reading.peak_memory_bytes == reading.peak_reserved_bytes + reading.outside_bytes
    assert 50 * MIB < reading.outside_bytes < 4096 * MIB
    del kept
    assert memory.reading(after=reading).peak_memory_bytes >= reading.peak_memory_bytes
    assert memory.reading().largest_free_block_bytes >= 512 * MIB


def test_the_cap_makes_a_small_device_of_a_large_one() -> None:
    limit = 4096 * MIB
    memory = open_memory(DEVICE, limit)
    memory.warm(1)
    memory.start()
    fits = torch.empty(1024 * MIB, dtype=torch.uint8, device=DEVICE)
    assert memory.cap_reached(1) is False
    with pytest.raises(torch.cuda.OutOfMemoryError):
        torch.empty(4096 * MIB, dtype=torch.uint8, device=DEVICE)
    assert memory.cap_reached() is True
    assert memory.cap_reached(4096 * MIB) is True
    assert 0 < (memory.used_share() or 0) <= 1
    peak = memory.reading().peak_memory_bytes
    assert peak is not None
    assert peak <= limit
    del fits
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


@pytest.mark.case("H09")
def test_the_device_is_the_same_by_both_libraries() -> None:
    uuid = cuda_uuid(DEVICE)
    listed = {device["uuid"]: device for device in list_devices()}
    found = describe(DEVICE)
    assert found["uuid"] == uuid
    if listed.get(uuid):
        assert listed[uuid]["visible"]
        assert listed[uuid]["total_memory_bytes"] == pytest.approx(found["total_memory_bytes"], rel=0.05)


def test_foreign_memory_cannot_be_told_once_we_are_on_the_device() -> None:
    torch.empty(1, device=DEVICE)
    assert used_bytes_before_context(DEVICE) is None


@pytest.mark.case("H06")
def test_clocks_and_energy_under_load_or_none() -> None:
    meter, conditions = EnergyMeter(DEVICE), Conditions(DEVICE)
    begun = time.perf_counter()
    while time.perf_counter() - begun < 5.5:
        busy()
        torch.cuda.synchronize()
        conditions.sample()
    meter.stop()
    found, joules = conditions.to_mapping(), meter.joules(time.perf_counter() - begun)
    if found["sm_clock_megahertz"] is not None:
        assert found["sm_clock_megahertz"] > 100
        assert 0 <= found["throttled_share"] <= 1
    assert joules is None or joules > 50
    assert meter.joules(1.0) is None


def test_a_large_product_uses_a_believable_share_of_the_peak() -> None:
    peak = peak_flops_per_second(torch.cuda.get_device_name(), "bf16-mixed")
    model = nn.Linear(8192, 8192, bias=False, device=DEVICE, dtype=torch.bfloat16)
    batch = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)

    def loss(module: nn.Module, rows: torch.Tensor) -> tuple[torch.Tensor, int]:
        return module(rows).sum(), rows.shape[0]

    workload: Any = SimpleNamespace(model=model, loss=loss)
    per_row = count_flops_per_unit(workload, batch)
    assert per_row == 2 * 2 * 8192 * 8192  # forward and the weights' gradient; the input wants none
    timer = open_timer(DEVICE)
    loss(model, batch)[0].backward()
    timer.start()
    for _ in range(20):
        loss(model, batch)[0].backward()
    timer.mark()
    share = mfu(flops_per_unit=per_row, units_per_second=20 * 8192 / timer.resolve()[0], peak=peak)
    assert share is None or 0.1 < share < 1.0


def test_the_reference_load_repeats() -> None:
    reference = ReferenceLoad(DEVICE)
    assert reference.seconds() == pytest.approx(reference.seconds(), rel=0.3)
