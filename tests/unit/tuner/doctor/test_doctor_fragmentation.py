"""Mistake 3: each planted fault is found, its clean twin is not accused."""

from __future__ import annotations

from typing import Any

import pytest
from doctor_studies import GIB, Tried, check, figure, finding, run, study

NAME = "fragmentation"


def soak(**said: Any):
    return run(
        "soak", trial_id=1, measurement={"seconds": 600.0, "growth": "flat", "peak_memory_bytes": 4 * GIB, **said}
    )


def soaked(**said: Any):
    return finding(study(Tried(), longer=[soak(**said)]), NAME, "soak")


@pytest.mark.parametrize("growth", ["flat", "saturates"])
def test_memory_that_stays_is_fine(growth):
    assert soaked(growth=growth).verdict == "fine"
    assert check(study(Tried(), longer=[soak(growth=growth)]), NAME).verdict == "fine"


def test_growth_is_told_with_its_pace_and_when_it_ends():
    slow = soaked(growth="grows", growth_bytes_per_hour=0.1 * GIB, growth_interval=[0.05 * GIB, 0.15 * GIB])
    assert slow.verdict == "improve"
    assert "40 h" in slow.statement
    fast = soaked(growth="grows", growth_bytes_per_hour=2 * GIB, growth_interval=[1.9 * GIB, 2.1 * GIB])
    assert fast.verdict == "broken"
    assert figure(fast, "growth") == 2 * GIB
    short = soaked(growth="grows", growth_bytes_per_hour=2 * GIB, seconds=60.0)  # two hours, from one minute
    assert short.verdict == "improve"
    assert "a longer soak tells" in short.statement


def test_steps_are_not_extrapolated():
    found = soaked(growth="steps", growth_bytes_per_hour=GIB)
    assert found.verdict == "improve"
    assert "limit is reached" not in found.statement


def test_cannot_tell_is_an_answer_and_asks_for_a_longer_soak():
    found = soaked(growth="cannot_tell")
    assert found.verdict == "not_measured"
    assert "--minutes 20" in found.measured_by


def test_a_leak_is_no_fragmentation():
    found = soaked(growth="grows", growth_bytes_per_hour=0.01 * GIB, leak=True, leak_source="losses kept in a list")
    assert found.verdict == "broken"
    assert "not fragmentation" in found.statement
    assert "item()" in found.advice[0].change


@pytest.mark.case("D06")
@pytest.mark.case("D07")
def test_remedies_that_helped_are_advised_with_their_measured_price():
    tried = [
        {"name": "allocator expandable_segments", "helps": True, "knobs": {"allocator": "expandable_segments"}},
        {"name": "empty_cache every 50 steps", "helps": True, "slowdown": 0.2, "growth_bytes_per_hour": 0.0},
        {"name": "length grouping", "helps": False},
    ]
    found = soaked(growth="grows", growth_bytes_per_hour=0.1 * GIB, remedies=tried)
    assert [each.change for each in found.advice] == ["allocator expandable_segments", "empty_cache every 50 steps"]
    assert found.advice[0].knobs == {"allocator": "expandable_segments"}
    assert found.advice[1].gain == pytest.approx(0.8)
    assert "slower" in found.advice[1].expected


@pytest.mark.case("A03")
@pytest.mark.parametrize(("unused", "verdict"), [(1.5, "improve"), (0.03, "fine")])
def test_reserved_and_unused_counts_by_its_share_of_the_device(unused, verdict):
    memory = {"peak_reserved_bytes": int((4 + unused) * GIB), "peak_allocated_bytes": 4 * GIB}
    found = finding(study(Tried(memory=memory), device="cuda"), NAME, "held_and_unused")
    assert found.verdict == verdict
    assert figure(found, "held and unused") == pytest.approx(unused / (8 / 0.92), rel=1e-3)
    if verdict == "improve":
        assert found.advice[0].knobs == {"allocator": "expandable_segments"}


def test_retries_mean_life_at_the_edge():
    assert (
        finding(study(Tried(memory={"allocation_retries": 3}), device="cuda"), NAME, "allocation_retries").verdict
        == "improve"
    )
    assert (
        finding(study(Tried(memory={"allocation_retries": 0}), device="cuda"), NAME, "allocation_retries").verdict
        == "fine"
    )


def test_trials_that_failed_in_pieces_are_counted_by_cause_not_by_the_printed_hint():
    hint = {"text": "If reserved but unallocated memory is large try setting expandable_segments:True"}
    pieces = Tried(outcome="device_oom", cause="fragmentation", rate=None)
    full = Tried(outcome="device_oom", cause="capacity", rate=None, evidence=hint)
    assert finding(study(Tried(), pieces, full), NAME, "out_of_memory_by_fragmentation").trials == (1,)
    names = {each.name for each in check(study(Tried(), full), NAME).findings}
    assert "out_of_memory_by_fragmentation" not in names


def test_a_cpu_is_not_judged_by_an_allocator_it_has_not():
    assert finding(study(Tried()), NAME, "held_and_unused").verdict == "not_comparable"
    assert check(study(Tried()), NAME).verdict == "not_measured"
