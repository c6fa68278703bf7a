"""From a process's end, its events and its request to the facts a verdict is made from."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectives.contract import ObjectiveReference
from objectives.trial.outcome import classify
from objectives.trial.protocol import Event, RunRequest
from tuner.work.ending import ending_from
from tuner.work.trial_process import ProcessEnd

MIB = 1 << 20
CPU_ALLOCATOR = "DefaultCPUAllocator: can't allocate memory: you tried to allocate {} bytes. Error code 12"


def request(**changes: Any) -> RunRequest:
    values: dict[str, Any] = {"run": "r", "purpose": "search", "objective": ObjectiveReference(kind="causal_lm")}
    return RunRequest(**values | changes)


def events(*named: tuple[str, dict[str, Any]]) -> list[Event]:
    return [
        Event(event=name, seq=seq, monotonic_seconds=float(seq), fields=fields)  # type: ignore[arg-type]
        for seq, (name, fields) in enumerate(named)
    ]


def failure(text: str = "no", cls: str = "RuntimeError", **facts: Any) -> tuple[str, dict[str, Any]]:
    return "failure", {"phase": "build", "chain": [{"cls": cls, "bases": ["Exception"], "text": text}], **facts}


def test_facts_come_from_where_they_are_known() -> None:
    ending = ending_from(
        ProcessEnd(exit_code=1, log_tail="bye", kernel_kills_rose=False),
        events(("started", {}), ("phase", {"phase": "build"}), failure(memory_used_share=0.4, cap_reached=False)),
        request(config={"loader_workers": 2, "micro_batch_size": 4}, memory_limit_bytes=MIB),
        ended_seconds=3.0,
    )
    assert (ending.exit_code, ending.phase, ending.log_tail, ending.device) == (1, "build", "bye", "cpu")
    assert (ending.memory_used_share, ending.cap_set, ending.cap_reached) == (0.4, True, False)
    assert (ending.loader_workers, ending.micro_batch_size, ending.kernel_kills_rose) == (2, 4, False)
    assert (ending.applied_steps, ending.ended_seconds) == (None, 3.0)
    assert [(record.cls, record.bases, record.text) for record in ending.chain] == [
        ("RuntimeError", ("Exception",), "no")
    ]


def test_a_run_that_said_nothing_was_importing() -> None:
    ending = ending_from(ProcessEnd(signal=9), [], request())
    assert (ending.phase, ending.chain, ending.finished, ending.applied_steps) == ("import", (), False, None)


@pytest.mark.case("B04")
@pytest.mark.parametrize(
    ("told", "outcome", "cause"),
    [
        ([("step", {"kind": "optimizer", "skipped": False}), ("measurement", {})], "completed", None),
        ([("step", {"kind": "optimizer", "skipped": True}), ("measurement", {})], "crashed", "no_step"),
        ([("step", {"kind": "micro"}), ("measurement", {"step_seconds": []})], "crashed", "no_step"),
        ([], "crashed", "no_result"),
    ],
)
def test_finished_alone_is_no_result(told: list[Any], outcome: str, cause: str | None) -> None:
    verdict = classify(ending_from(ProcessEnd(exit_code=0), events(*told, ("finished", {})), request()))
    assert (verdict.outcome, verdict.cause) == (outcome, cause)


def test_a_run_that_only_answers_has_no_steps_to_show() -> None:
    ending = ending_from(ProcessEnd(exit_code=0), events(("finished", {})), request(purpose="capability"))
    assert classify(ending).outcome == "completed"


@pytest.mark.case("A20")
@pytest.mark.parametrize(
    ("asked", "facts", "reached"),
    [
        (900 * MIB, {"cap_reached": False, "memory_used_share": 0.2}, True),
        (100 * MIB, {"cap_reached": False, "memory_used_share": 0.2}, False),
        (100 * MIB, {"cap_reached": True, "memory_used_share": 0.2}, True),
        (900 * MIB, {"cap_reached": False, "memory_used_share": 0.2, "phase": "measure"}, False),
        (900 * MIB, {"cap_reached": False, "memory_used_share": 0.2, "cap_set": False}, False),
    ],
    ids=["larger than what was left", "smaller", "told", "cap lifted by then", "no cap"],
)
def test_one_large_request_reaches_the_cap_too(asked: int, facts: dict[str, Any], reached: bool) -> None:
    told = failure(CPU_ALLOCATOR.format(asked), **facts)
    ending = ending_from(ProcessEnd(exit_code=1), events(told), request(memory_limit_bytes=1000 * MIB))
    assert ending.cap_reached is reached
    assert classify(ending).outcome == ("device_oom" if reached else "host_oom")


@pytest.mark.parametrize(("seen", "near"), [(980 * MIB, True), (300 * MIB, False)])
def test_a_crash_without_words_is_near_the_cap_by_what_was_seen(seen: int, near: bool) -> None:
    ending = ending_from(
        ProcessEnd(signal=11, peak_anonymous_bytes=seen),
        events(("phase", {"phase": "worst_case"})),
        request(memory_limit_bytes=1000 * MIB),
    )
    verdict = classify(ending)
    assert verdict.outcome == "crashed"
    assert bool(verdict.numbers.get("near_cap")) is near


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(
    ["phase", "chain", "memory_used_share", "cap_set", "cap_reached", "applied_steps", "kind", "skipped"]
)
told = st.tuples(
    st.sampled_from(["started", "phase", "step", "failure", "measurement", "finished"]),
    st.dictionaries(names, anything | st.lists(st.fixed_dictionaries({"cls": anything, "text": anything}), max_size=2)),
)


@given(st.lists(told, max_size=5))
def test_whatever_a_child_sends_it_gets_a_verdict(sent: list[Any]) -> None:
    classify(ending_from(ProcessEnd(exit_code=1), events(*sent), request(memory_limit_bytes=MIB)))
