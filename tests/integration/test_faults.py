"""Faults of real children: each must survive the trip from the child's end to a verdict."""

from __future__ import annotations

import importlib
import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from objectives.contract import ObjectiveReference
from objectives.trial.outcome import Ending, blame, classify
from objectives.trial.protocol import RunRequest, WindowPlan
from tuner.work.ending import ending_from
from tuner.work.launcher import Launcher

TESTS = Path(__file__).parents[1]
PATIENCE_SECONDS = 90.0
GIB = 1 << 30

ROWS = [json.loads(line) for line in (TESTS / "recordings" / "faults.jsonl").read_text(encoding="utf-8").splitlines()]
STATED = ("memory_used_share", "device", "cap_set", "cap_reached", "kernel_kills_rose", "loader_workers")
"""Facts about a machine that a healthy one cannot be made to show; the rest is really done by the child."""
PLACES = {"import": "import", "build": "build"}
EXTRA_CASES = {"A06", "A14", "A22", "A32", "A36", "dirty text", "exit"}


def is_run(row: dict[str, Any]) -> bool:
    context = row.get("context", {})
    cannot = (
        "finished" in context
        or row["how"] == "lost"
        or context.get("phase") in ("init", "load", "warm_up", "compile", "eval")
    )
    return not cannot and (row["name"] == "handed" or row["case"] in EXTRA_CASES)


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher(preload=["torch", "torch.utils.data", "objectives.trial.training_loop"]) as made:
        yield made


def make_request(settings: dict[str, Any], **changes: Any) -> RunRequest:
    values: dict[str, Any] = {
        "run": str(uuid.uuid4()),
        "purpose": "search",
        "objective": ObjectiveReference(kind="tests_faulty:Faulty", settings=settings, folder=str(TESTS / "workloads")),
        "config": {"micro_batch_size": 2},
        "global_batch_size": 2,
        "window": WindowPlan(min_seconds=0.2, max_seconds=0.5),
    }
    return RunRequest(**values | changes)


def end_of(launcher: Launcher, log: Path, request: RunRequest, kill: str | None = None) -> Ending:
    process = launcher.start(request, log)
    events, give_up_at = [], time.monotonic() + PATIENCE_SECONDS
    while process.ended is None:
        assert time.monotonic() < give_up_at, events
        events += process.poll(0.2)
        if kill and any(event.event == "phase" for event in events):
            process.kill(kill)
    return ending_from(process.ended, events, request)


def settings_of(row: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    context = row.get("context", {})
    kill = context.get("why") if context.get("we_killed") else None
    return {
        "at": PLACES.get(context.get("phase", ""), "loss") if kill is None else "build",
        "how": {"warn_then_raise": "raise"}.get(row["how"], row["how"]) if kill is None else "hang",
        "chain": [(one["cls"], one["text"]) for one in row.get("chain", ())],
        "log": row.get("log", ""),
        "number": context.get("signal", context.get("exit_code", 0)),
        "after": 0 if context.get("applied_steps") == 0 else 3,
    }, kill


@pytest.mark.case(*sorted({row["case"] for row in ROWS if is_run(row) and row["case"][0] in "ABCDEFGHI"}))
@pytest.mark.parametrize("row", [row for row in ROWS if is_run(row)], ids=lambda row: f"{row['case']} {row['name']}")
def test_a_real_child_that_fails_so_gets_its_verdict(launcher: Launcher, tmp_path: Path, row: dict[str, Any]) -> None:
    settings, kill = settings_of(row)
    ending = end_of(launcher, tmp_path / "log", make_request(settings), kill)
    assert ending.killed_by_us == (kill is not None)
    assert len(ending.chain) == len(settings["chain"])
    for record, (cls, text) in zip(ending.chain, settings["chain"], strict=True):
        assert record.cls.rpartition(".")[2] == cls.rpartition(".")[2]
        assert text in record.text
    context = row.get("context", {})
    stated = {name: context.get(name) for name in STATED}
    verdict = classify(replace(ending, **stated))
    expected = row["expect"]
    assert verdict.outcome == expected["outcome"], verdict
    if expected["cause"] is not None:
        assert verdict.cause == expected["cause"], verdict
    if expected["confidence"] is not None:
        assert verdict.confidence == expected["confidence"], verdict


def test_a_run_that_goes_well_is_completed(launcher: Launcher, tmp_path: Path) -> None:
    ending = end_of(launcher, tmp_path / "log", make_request({"how": "nothing"}))
    assert ending.finished
    assert ending.applied_steps is not None
    assert ending.applied_steps > 0
    assert classify(ending).outcome == "completed"


@pytest.mark.case("A20")
def test_an_impossible_tensor_without_a_cap_is_the_hosts_fault(launcher: Launcher, tmp_path: Path) -> None:
    request = make_request({"at": "build", "how": "allocate", "number": 10**14}, cap_memory=False)
    verdict = classify(end_of(launcher, tmp_path / "log", request))
    assert (verdict.outcome, verdict.cause) == ("host_oom", None)
    assert verdict.numbers["requested_bytes"] == 10**14


@pytest.mark.case("A20")
@pytest.mark.parametrize("number", [GIB, 16 << 20], ids=["one large tensor", "many small ones"])
def test_a_real_cap_that_is_really_reached_is_the_devices(launcher: Launcher, tmp_path: Path, number: int) -> None:
    request = make_request(
        {"at": "build", "how": "allocate", "number": number}, cap_memory=True, memory_limit_bytes=GIB // 4
    )
    verdict = classify(end_of(launcher, tmp_path / "log", request))
    assert (verdict.outcome, verdict.cause, verdict.confidence) == ("device_oom", "cap", "certain"), verdict


@pytest.mark.case("A32")
def test_a_compiler_that_runs_out_of_memory(launcher: Launcher, tmp_path: Path) -> None:
    chain = [("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.")]
    ending = end_of(launcher, tmp_path / "log", make_request({"how": "compile", "chain": chain}))
    assert [record.cls for record in ending.chain] == [
        "torch._dynamo.exc.BackendCompilerFailed",
        "torch.OutOfMemoryError",
    ]
    verdict = classify(ending)
    assert (verdict.outcome, verdict.cause, verdict.confidence) == ("device_oom", "capacity", "certain")


@pytest.mark.case("A21")
def test_a_child_that_is_killed_from_outside_is_not_ours(launcher: Launcher, tmp_path: Path) -> None:
    ending = end_of(launcher, tmp_path / "log", make_request({"how": "signal", "number": 9}))
    assert not ending.killed_by_us
    assert classify(ending).outcome == "host_oom"


@pytest.mark.case("A22", "A23")
@pytest.mark.parametrize(
    ("how", "outcome", "cause"),
    [
        ({"how": "signal", "number": 7}, "shm", None),
        ({"how": "signal", "number": 9}, "host_oom", None),
        ({"how": "raise", "chain": [("MemoryError", "")]}, "host_oom", None),
        ({"how": "raise", "chain": [("torch.OutOfMemoryError", "CUDA out of memory.")]}, "device_oom", "capacity"),
        ({"how": "raise", "chain": [("ValueError", "row 3 is broken")]}, "crashed", None),
    ],
    ids=["bus error", "killed", "memory error", "device memory", "its own fault"],
)
def test_a_loader_worker_that_fails(
    launcher: Launcher, tmp_path: Path, how: dict[str, Any], outcome: str, cause: str | None
) -> None:
    config = {"micro_batch_size": 2, "loader_workers": 1}
    verdict = classify(end_of(launcher, tmp_path / "log", make_request({"at": "worker", **how}, config=config)))
    assert (verdict.outcome, verdict.cause) == (outcome, cause), verdict


@pytest.mark.case("A19")
def test_the_rank_that_ran_out_of_memory_names_the_run(launcher: Launcher, tmp_path: Path) -> None:
    chain = [("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.")]
    waits = make_request({"at": "build", "how": "hang"}, rank=0, world_size=2)
    fails = make_request({"at": "build", "how": "raise", "chain": chain}, rank=1, world_size=2)
    waiting = launcher.start(waits, tmp_path / "0")
    begun = time.monotonic()
    failed = end_of(launcher, tmp_path / "1", fails)
    waiting.kill("peer")
    events = []
    while waiting.ended is None:
        assert time.monotonic() < begun + PATIENCE_SECONDS
        events += waiting.poll(0.2)
    others = ending_from(waiting.ended, events, waits)
    assert classify(blame({0: others, 1: failed})).outcome == "device_oom"


@pytest.mark.parametrize(
    ("name", "outcome", "cause"),
    [
        ("objectives.trial.training_loop.NotApplied", "unsupported", "not_applied"),
        ("objectives.trial.trainer.NumericalFault", "numerical", None),
    ],
)
def test_our_own_exceptions_are_known_by_their_real_names(
    launcher: Launcher, tmp_path: Path, name: str, outcome: str, cause: str | None
) -> None:
    module, _, short = name.rpartition(".")
    assert hasattr(importlib.import_module(module), short), "the class has moved: the kinds of faults name it"
    ending = end_of(launcher, tmp_path / "log", make_request({"at": "build", "chain": [(name, "differs")]}))
    assert ending.chain[0].cls == name
    verdict = classify(ending)
    assert (verdict.outcome, verdict.cause) == (outcome, cause)
