"""How runs end: recorded faults of every kind, and what must hold for any fault at all."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives.trial.outcome import (
    CAUSES,
    OUTCOMES,
    Ending,
    ExceptionRecord,
    Outcome,
    classify,
    extract_numbers,
    should_retry,
    teaches,
)

RECORDED = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "recordings" / "faults.jsonl").read_text(encoding="utf-8").splitlines()
]
GIB = 1 << 30


def ending_of(row: dict[str, Any]) -> Ending:
    context = {"phase": "measure"} | row.get("context", {})
    context["killed_by_us"] = context.pop("we_killed", False)
    context["kill_reason"] = context.pop("why", None)
    chain = tuple(
        ExceptionRecord(cls=one["cls"], bases=tuple(one.get("bases", ())), text=one["text"])
        for one in row.get("chain", ())
    )
    if chain:
        context.setdefault("exit_code", 1)
    return Ending(chain=chain, log_tail=row.get("log", ""), launcher_lost=row["how"] == "lost", **context)


def raised(cls: str, text: str = "", *bases: str, **facts: Any) -> Ending:
    record = ExceptionRecord(cls=cls, bases=bases, text=text)
    return Ending(**{"chain": (record,), "exit_code": 1, "phase": "measure"} | facts)


def named(row: dict[str, Any]) -> str:
    return f"{row['case']} {row['name']}"


@pytest.mark.case(*sorted({row["case"] for row in RECORDED if row["case"][0] in "ABCDEFGHI"}))
@pytest.mark.parametrize("row", RECORDED, ids=named)
def test_every_recorded_fault_gets_its_verdict(row: dict[str, Any]) -> None:
    verdict = classify(ending_of(row))
    expected = row["expect"]
    assert verdict.outcome == expected["outcome"], verdict
    if row["name"] != "handed" or expected["cause"] is not None:
        assert verdict.cause == expected["cause"], verdict
    if expected["confidence"] is not None:
        assert verdict.confidence == expected["confidence"], verdict
    assert verdict.cause is None or CAUSES[verdict.cause][0] == verdict.outcome
    assert len(verdict.text) <= 500


@pytest.mark.case("I10", "D07")
@pytest.mark.parametrize("row", [row for row in RECORDED if "chain" in row], ids=named)
def test_a_warning_in_the_log_never_changes_the_verdict_of_an_exception(row: dict[str, Any]) -> None:
    quiet = ending_of(row)
    loud = replace(
        quiet, log_tail="UserWarning: CUDA out of memory. Tried to allocate 2.00 GiB\nKilled\nstd::bad_alloc\n"
    )
    assert classify(loud) == classify(quiet)


def test_the_lists_are_complete() -> None:
    assert tuple(row.outcome for row in OUTCOMES) == get_args(Outcome)
    assert {outcome for outcome, _ in CAUSES.values()} <= set(get_args(Outcome))
    assert {row.told for row in OUTCOMES} == {"COMPLETE", "FAIL"}
    told_fail = {row.outcome for row in OUTCOMES if row.told == "FAIL"}
    assert told_fail == {"host_oom", "shm", "crashed", "infra", "cancelled"}


# Properties

texts = st.text(max_size=200) | st.sampled_from([one["text"] for row in RECORDED for one in row.get("chain", ())])
classes = st.sampled_from(sorted({one["cls"] for row in RECORDED for one in row.get("chain", ())})) | st.text(
    max_size=20
)
records = st.builds(ExceptionRecord, cls=classes, bases=st.lists(classes, max_size=2).map(tuple), text=texts)
shares = st.none() | st.floats(allow_nan=True)
endings = st.builds(
    Ending,
    exit_code=st.none() | st.integers(-70, 300),
    signal=st.none() | st.integers(0, 64),
    killed_by_us=st.booleans(),
    kill_reason=st.none()
    | st.sampled_from(["trial_time", "compile_time", "dominated", "cancelled"])
    | st.text(max_size=9),
    phase=st.none() | st.sampled_from(["import", "build", "measure", "eval"]) | st.text(max_size=5),
    applied_steps=st.none() | st.integers(0, 9),
    chain=st.lists(records, max_size=3).map(tuple),
    finished=st.booleans(),
    log_tail=texts,
    device=st.sampled_from([None, "cpu", "cuda"]),
    memory_used_share=shares,
    cap_set=st.sampled_from([None, False, True]),
    cap_reached=st.sampled_from([None, False, True]),
    kernel_kills_rose=st.sampled_from([None, False, True]),
    launcher_lost=st.booleans(),
    loader_workers=st.none() | st.integers(0, 4),
    micro_batch_size=st.none() | st.integers(1, 4),
)


@settings(deadline=None)
@given(endings)
def test_any_ending_has_one_verdict_of_the_lists(ending: Ending) -> None:
    verdict = classify(ending)
    assert verdict == classify(ending)
    assert verdict.outcome in get_args(Outcome)
    assert verdict.cause is None or CAUSES[verdict.cause][0] == verdict.outcome
    assert teaches(verdict) is not None
    should_retry(verdict, 1)


@settings(deadline=None)
@given(endings, texts)
def test_no_log_decides_where_an_exception_was_recorded(ending: Ending, log: str) -> None:
    failed = replace(ending, chain=ending.chain or (ExceptionRecord(cls="ValueError", text="x"),), signal=None)
    assert classify(replace(failed, log_tail=log)) == classify(failed)


@settings(deadline=None)
@given(st.sampled_from(["ValueError", "KeyError", "IndexError", "mypkg.MyOutOfMemoryError"]), endings)
def test_an_ordinary_error_that_talks_about_memory_is_no_memory_fault(cls: str, ending: Ending) -> None:
    record = ExceptionRecord(
        cls=cls, text="CUDA out of memory. Tried to allocate 2.00 GiB; host memory; std::bad_alloc"
    )
    failed = replace(ending, chain=(record,), killed_by_us=False, launcher_lost=False, finished=False)
    assert classify(failed).outcome == "crashed"


@settings(deadline=None)
@given(texts)
def test_numbers_are_read_from_anything(text: str) -> None:
    assert all(isinstance(size, int) and 0 <= size < 1 << 50 for size in extract_numbers(text).values())


# Numbers


def test_numbers_of_a_message_in_full() -> None:
    text = (
        "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 24.00 GiB of which 12.00 MiB "
        "is free. Process 4411 has 20.00 GiB memory in use. Including non-PyTorch memory, this process has 3.00 GiB "
        "memory in use. Of the allocated memory 2.00 GiB is allocated by PyTorch, and 256.00 MiB is reserved by "
        "PyTorch but unallocated."
    )
    assert extract_numbers(text) == {
        "requested_bytes": GIB // 2,
        "capacity_bytes": 24 * GIB,
        "free_bytes": 12 << 20,
        "allocated_bytes": 2 * GIB,
        "unallocated_bytes": GIB // 4,
        "process_bytes": 3 * GIB,
        "other_processes_bytes": 20 * GIB,
    }


def test_numbers_of_the_oldest_message() -> None:
    text = (
        "Tried to allocate 1.00 GiB (GPU 0; 11.00 GiB total capacity; 8.00 GiB already allocated; 0 bytes free; "
        "9.00 GiB reserved in total by PyTorch)"
    )
    assert extract_numbers(text) == {
        "requested_bytes": GIB,
        "capacity_bytes": 11 * GIB,
        "free_bytes": 0,
        "allocated_bytes": 8 * GIB,
        "reserved_bytes": 9 * GIB,
        "unallocated_bytes": GIB,
    }


@pytest.mark.case("A03")
def test_absurd_numbers_are_left_out() -> None:
    assert extract_numbers("this process has 17179869184.00 GiB memory in use") == {}


@pytest.mark.parametrize(
    "text",
    [
        "1" * 5_000_000,
        "1 GiB " * 800_000,
        "Process 1 has " * 350_000,
        "to allocate" + " " * 5_000_000,
        "A.b" * 1_700_000,
    ],
    ids=["digits", "sizes", "processes", "spaces", "words"],
)
def test_five_megabytes_are_read_in_no_time(text: str) -> None:
    begun = time.process_time()
    extract_numbers(text)
    classify(raised("RuntimeError", text))
    classify(Ending(exit_code=1, log_tail=text))
    assert time.process_time() - begun < 2.0


# Order of the evidence


def test_an_error_before_our_deadline_is_the_outcome() -> None:
    late = {"killed_by_us": True, "kill_reason": "trial_time", "signal": int(signal.SIGKILL), "exit_code": None}
    assert classify(raised("torch.OutOfMemoryError", **late)).outcome == "device_oom"
    assert classify(raised("KeyboardInterrupt", **late)).outcome == "timeout"


def test_a_complete_result_outlives_a_deadline_but_not_a_prune() -> None:
    facts: dict[str, Any] = {"finished": True, "applied_steps": 9, "killed_by_us": True}
    assert classify(Ending(kill_reason="trial_time", **facts)).outcome == "completed"
    assert classify(Ending(kill_reason="dominated", **facts)).outcome == "pruned"
    assert classify(Ending(kill_reason="cancelled", **facts)).outcome == "cancelled"


def test_a_lost_template_is_nobodys_fault() -> None:
    assert classify(Ending(launcher_lost=True, signal=11)).cause == "worker_lost"
    assert classify(Ending(launcher_lost=True, finished=True, applied_steps=3)).outcome == "completed"


@pytest.mark.case("A01")
def test_the_class_is_known_by_its_bases_where_its_name_is_not() -> None:
    verdict = classify(raised("vendor.DeviceFull", "", "torch.OutOfMemoryError", "RuntimeError"))
    assert (verdict.outcome, verdict.confidence) == ("device_oom", "certain")


@pytest.mark.case("A02")
def test_advice_speaks_of_other_processes() -> None:
    text = "CUDA out of memory. Tried to allocate 96.00 MiB. Process 4411 has 20.0 GiB memory in use."
    verdict = classify(raised("torch.cuda.OutOfMemoryError", text))
    assert verdict.numbers["other_processes_bytes"] == 20 * GIB
    assert "Another process" in verdict.advice


@pytest.mark.case("A22", "A24", "A27", "A35", "E12")
@pytest.mark.parametrize(
    ("ending", "word"),
    [
        (raised("RuntimeError", "DataLoader worker (pid 9) is killed by signal: Bus error."), "--shm-size"),
        (raised("OSError", "[Errno 24] Too many open files"), "ulimit -n"),
        (raised("RuntimeError", "CUDA error: device-side assert triggered"), "vocabulary"),
        (raised("RuntimeError", "nvmlInit_v2_() INTERNAL ASSERT FAILED"), "reload the driver"),
    ],
)
def test_advice_names_what_helps(ending: Ending, word: str) -> None:
    assert word in classify(ending).advice


@pytest.mark.case("D09")
def test_memory_in_evaluation_teaches_nothing_about_training() -> None:
    in_training = classify(raised("torch.OutOfMemoryError", phase="measure"))
    in_evaluation = classify(raised("torch.OutOfMemoryError", phase="eval"))
    assert (teaches(in_training), teaches(in_evaluation)) == ("needs_more", "itself")
    assert in_evaluation.phase == "eval"
    assert "valuation" in in_evaluation.advice
