"""What follows from an ending: another try, the word on a measurement, the guilty rank, and failures that are alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from objectives.trial.outcome import (
    Ending,
    ExceptionRecord,
    Verdict,
    blame,
    classify,
    judge_measurement,
    same_failure,
    should_retry,
)

GIB = 1 << 30


def raised(cls: str, text: str = "", **facts: Any) -> Ending:
    record = ExceptionRecord(cls=cls, text=text)
    return Ending(**{"chain": (record,), "exit_code": 1, "phase": "measure"} | facts)


# Another try


@pytest.mark.parametrize(
    ("ending", "attempt", "how"),
    [
        (raised("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED"), 1, "same"),
        (raised("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED"), 2, None),
        (raised("torch.OutOfMemoryError"), 1, None),
        (raised("MemoryError"), 1, "fewer_workers"),
        (raised("MemoryError"), 2, None),
        (raised("RuntimeError", "DataLoader worker (pid 9) is killed by signal: Bus error."), 1, "fewer_workers"),
        (Ending(launcher_lost=True), 1, "elsewhere"),
        (Ending(launcher_lost=True), 2, "elsewhere"),
        (Ending(launcher_lost=True), 3, None),
        (raised("ValueError", "no"), 1, None),
        (Ending(signal=11), 1, None),
        (Ending(signal=11, device="cpu", cap_set=True, memory_used_share=0.95), 1, "raised_cap"),
        (Ending(signal=11, device="cpu", cap_set=True, memory_used_share=0.95), 2, None),
        (Ending(signal=11, device="cpu", cap_set=True, memory_used_share=0.3), 1, None),
        (Ending(signal=11, device="cpu", cap_set=False, memory_used_share=0.95), 1, None),
        (Ending(exit_code=1, log_tail="libgomp: Thread creation failed: Resource temporarily unavailable", device="cpu",
                cap_set=True, cap_reached=True), 1, "raised_cap"),
        (Ending(killed_by_us=True, kill_reason="cancelled"), 1, None),
    ],
)  # fmt: skip
def test_what_is_tried_again(ending: Ending, attempt: int, how: str | None) -> None:
    retry = should_retry(classify(ending), attempt)
    assert (retry.how if retry else None) == how
    assert retry is None or (retry.cap_factor > 1) == (how == "raised_cap")


# What a measurement says


@pytest.mark.case("H10")
def test_more_used_than_there_is_means_it_was_spilled() -> None:
    verdict = judge_measurement(peak_bytes=30 * GIB, capacity_bytes=16 * GIB, applied_steps=9)
    assert (verdict.outcome, verdict.cause, verdict.confidence) == ("device_oom", "spill", "certain")
    assert judge_measurement(peak_bytes=15 * GIB, capacity_bytes=16 * GIB, applied_steps=9).outcome == "completed"


def test_swapping_is_spilling_too() -> None:
    assert judge_measurement(peak_bytes=GIB, capacity_bytes=None, swapped_bytes=GIB // 2).cause == "spill"
    assert judge_measurement(peak_bytes=GIB, capacity_bytes=None, swapped_bytes=4096).outcome == "completed"


def test_the_measured_peak_decides_after_a_raised_cap() -> None:
    facts: dict[str, Any] = {"capacity_bytes": 64 * GIB, "cap_bytes": 2 * GIB, "applied_steps": 2}
    assert judge_measurement(peak_bytes=2 * GIB + 1, **facts).cause == "cap"
    assert judge_measurement(peak_bytes=2 * GIB, **facts).outcome == "completed"


@pytest.mark.case("C01", "B04")
def test_skipped_steps_are_no_training() -> None:
    facts: dict[str, Any] = {"peak_bytes": GIB, "capacity_bytes": 2 * GIB}
    assert judge_measurement(applied_steps=0, skipped_share=1.0, **facts).outcome == "numerical"
    assert judge_measurement(applied_steps=5, skipped_share=0.5, **facts).outcome == "numerical"
    assert judge_measurement(applied_steps=50, skipped_share=0.02, **facts).outcome == "completed"
    assert judge_measurement(applied_steps=5, losses_finite=False, **facts).outcome == "numerical"
    assert judge_measurement(applied_steps=0, **facts).cause == "no_step"


def test_a_missing_peak_is_no_reason() -> None:
    assert judge_measurement(peak_bytes=None, capacity_bytes=None).outcome == "completed"


# Ranks

WAITED = raised("RuntimeError", "Watchdog caught collective operation timeout", ended_seconds=5.0)
FULL = raised("torch.OutOfMemoryError")
KILLED_WITH_THE_OTHERS = Ending(signal=9, killed_by_us=True, kill_reason="peer", ended_seconds=1.0)


@pytest.mark.case("A19", "A33")
@pytest.mark.parametrize(
    ("endings", "rank"),
    [
        ({0: WAITED, 1: replace(FULL, ended_seconds=9.0)}, 1),
        ({0: replace(WAITED, ended_seconds=None), 1: FULL}, 1),
        ({0: KILLED_WITH_THE_OTHERS, 1: replace(FULL, ended_seconds=9.0)}, 1),
        (
            {
                0: raised("RuntimeError", "Connection closed by peer [127.0.0.1]:4", ended_seconds=1.0),
                1: Ending(signal=9),
            },
            1,
        ),
        ({0: Ending(exit_code=1), 1: Ending(exit_code=-9)}, 1),
        ({0: raised("ValueError", "own", ended_seconds=1.0), 1: replace(FULL, ended_seconds=2.0)}, 0),
        (
            {
                0: Ending(finished=True, exit_code=0, ended_seconds=0.5),
                1: raised("ValueError", "own", ended_seconds=1.0),
            },
            1,
        ),
        ({0: replace(WAITED, ended_seconds=6.0), 1: WAITED}, 1),
        ({0: WAITED, 1: KILLED_WITH_THE_OTHERS}, 0),
    ],
)
def test_the_rank_that_failed_on_its_own_names_the_run(endings: dict[int, Ending], rank: int) -> None:
    assert blame(endings) is endings[rank]


@pytest.mark.case("F01")
def test_only_waiting_ranks_are_a_collective_timeout() -> None:
    waiting = raised("RuntimeError", "[gloo] Timed out waiting 4000ms for recv operation to complete")
    assert classify(blame({0: waiting, 1: Ending(exit_code=0, finished=True)})).cause == "collective"


# Several alike


@pytest.mark.case("A27", "G26", "A36")
def test_failures_with_one_reason_are_alike_whatever_their_numbers() -> None:
    def crash(text: str) -> Verdict:
        return classify(raised("ValueError", text))

    assert same_failure(
        crash("mismatch micro 1 vs 8 at 0x7f3a, pid 41"), crash("mismatch micro 2 vs 16 at 0x7f99, pid 977")
    )
    assert same_failure(crash("cannot read /tmp/run-a1/x.bin"), crash("cannot read /tmp/run-b2/x.bin"))
    assert not same_failure(crash("mismatch"), crash("no such column"))
    assert not same_failure(crash("mismatch"), classify(raised("KeyError", "mismatch")))
    assert same_failure(classify(Ending(signal=11)), classify(Ending(signal=11, exit_code=None)))
    assert not same_failure(classify(Ending(signal=11)), classify(Ending(signal=6)))
