"""Rules over memory readings, and what the CUDA allocator's tables say. No device, no torch."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives.measure.memory_cuda import fragmentation_share, largest_free_block
from objectives.measure.reading import MemoryReading, fits, over_ranks, spilled

UNHURRIED = settings(deadline=None, max_examples=60)

GIB = 1024**3


def peak(gib: float) -> MemoryReading:
    return MemoryReading(peak_memory_bytes=int(gib * GIB))


@pytest.mark.case("D11")
def test_one_rank_over_the_limit_is_all_of_them_over() -> None:
    ranks = [peak(10), peak(10), peak(10), peak(21)]
    assert not fits(ranks, 20 * GIB)
    assert over_ranks(ranks).peak_memory_bytes == 21 * GIB
    assert fits(ranks[:3], 20 * GIB)


def test_an_unknown_peak_does_not_fit() -> None:
    assert not fits([peak(1), MemoryReading()], 20 * GIB)
    assert not fits([], 20 * GIB)
    assert fits([peak(100)], None)


def test_the_worst_of_each_figure() -> None:
    merged = over_ranks(
        [
            MemoryReading(peak_memory_bytes=5, largest_free_block_bytes=100, allocation_retries=0),
            MemoryReading(peak_memory_bytes=7, largest_free_block_bytes=30, swap_bytes=2),
        ]
    )
    assert merged == MemoryReading(peak_memory_bytes=7, largest_free_block_bytes=30, allocation_retries=0, swap_bytes=2)
    with pytest.raises(ValueError, match="at least one"):
        over_ranks([])


@UNHURRIED
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=8), st.integers(0, 10**12))
def test_fitting_is_the_largest_peak_fitting(peaks: list[int], limit: int) -> None:
    readings = [MemoryReading(peak_memory_bytes=value) for value in peaks]
    assert fits(readings, limit) == (max(peaks) <= limit)


@pytest.mark.case("H10")
def test_more_than_the_device_has_is_a_spill() -> None:
    assert spilled(peak(30), 16 * GIB)
    assert spilled(MemoryReading(peak_memory_bytes=10, peak_allocated_bytes=30 * GIB), 16 * GIB)
    assert not spilled(peak(15), 16 * GIB)
    assert not spilled(peak(30), None)


def test_swapping_is_a_spill() -> None:
    assert spilled(MemoryReading(peak_memory_bytes=1, swap_bytes=4096), 16 * GIB)
    assert not spilled(MemoryReading(peak_memory_bytes=1, swap_bytes=0), 16 * GIB)


def test_a_later_reading_renews_counters_and_raises_peaks() -> None:
    worst = MemoryReading(peak_memory_bytes=100, allocation_retries=0, major_page_faults=1)
    later = MemoryReading(peak_memory_bytes=120, allocation_retries=3, major_page_faults=5)
    assert worst.with_later(later) == MemoryReading(peak_memory_bytes=120, allocation_retries=3, major_page_faults=5)


def test_missing_figures_are_null_in_the_event() -> None:
    assert MemoryReading(peak_memory_bytes=1).to_mapping()["allocation_retries"] is None


def test_fragmentation_is_what_is_held_and_not_used() -> None:
    stats = {"reserved_bytes.all.current": 100, "allocated_bytes.all.current": 60}
    assert fragmentation_share(stats) == pytest.approx(0.4)
    assert fragmentation_share({"reserved_bytes.all.current": 0}) is None


def test_the_largest_free_block_of_a_snapshot() -> None:
    snapshot = [
        {"blocks": [{"size": 512, "state": "active_allocated"}, {"size": 256, "state": "inactive"}]},
        {"blocks": [{"size": 384, "state": "inactive"}, {"size": 999, "state": "active_pending_free"}]},
    ]
    assert largest_free_block(snapshot) == 384
    assert largest_free_block([]) == 0
