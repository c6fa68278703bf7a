"""What a script's ranks say becomes warm-up, window and measurement: one stream, several ranks, ragged endings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from objectives.contract import ObjectiveReference
from objectives.script.ledger import Ledger
from objectives.script.measuring import measurement, memory_over_ranks
from objectives.trial.protocol import RunRequest, WindowPlan

PLAN = WindowPlan(min_seconds=0.5, max_seconds=1.0)


def row(index: int, seconds: float | None, **values: Any) -> list[Any]:
    given = {
        "micro": 2, "samples": 8, "tokens": None, "wait": 0.0, "own": 0.0001, "applied": True, "evaluated": False,
        "backward": None, **values,
    }  # fmt: skip
    order = ("micro", "samples", "tokens", "wait", "own", "applied", "evaluated", "backward")
    return [index, float(index), seconds, *(given[name] for name in order)]


def say(ledger: Ledger, pid: int, seconds: Sequence[float], *, start: int = 3, rank: int = 0, **values: Any) -> None:
    world = ledger.world
    for index, each in enumerate(seconds, start):
        ledger.hear(pid, {"rank": rank, "world_size": world, "steps": [row(index, each, **values)]}, now=0.0)


def opened(world: int = 1, plan: WindowPlan = PLAN) -> Ledger:
    """A ledger whose ranks have read back and closed their memory window after two steps."""
    ledger = Ledger(world_size=world, plan=plan, micro_batch_size=4)
    for rank in range(world):
        said = {"rank": rank, "world_size": world}
        ledger.hear(100 + rank, {**said, "began": True}, 0.0)
        first = [row(1, None), row(2, 9.0)]
        memory = {"peak_memory_bytes": 1000 + rank}
        ledger.hear(100 + rank, {**said, "applied": {}, "window_steps": 2, "memory": memory, "steps": first}, 0.0)
    return ledger


def request(world: int = 1) -> RunRequest:
    reference = ObjectiveReference(kind="script")
    return RunRequest(run="r", purpose="search", objective=reference, world_size=world)


@pytest.mark.case("H02", "H03")
def test_the_memory_window_and_the_warm_up_are_no_measurement() -> None:
    ledger = opened()
    say(ledger, 100, [0.4, 0.1, *[0.05] * 40])
    assert ledger.complete
    assert [step.seconds for step in ledger.worst_case] == [9.0]
    assert {step.seconds for step in ledger.window} == {0.05}
    found = measurement(ledger, request())
    assert found["throughput"] == pytest.approx(8 / 0.05)
    assert found["throughput_unit"] == "samples_per_second"
    assert found["hook_share"] == pytest.approx(0.0001 / 0.05)
    assert found["tokens_per_second"] is None
    assert found["memory"]["peak_memory_bytes"] == 1000


def test_a_step_with_an_evaluation_in_it_is_no_step_time() -> None:
    ledger = opened()
    say(ledger, 100, [0.05] * 6)
    say(ledger, 100, [30.0], start=9, evaluated=True)
    say(ledger, 100, [0.05] * 30, start=10)
    assert max(step.seconds for step in ledger.window) == 0.05
    assert ledger.evaluated == 1


@pytest.mark.case("B02", "D11", "B12")
def test_ranks_are_added_and_the_worst_one_s_memory_decides_on_devices_of_their_own() -> None:
    ledger = opened(world=2)
    for rank in range(2):
        say(ledger, 100 + rank, [0.05] * 40, rank=rank, wait=0.01 * rank, backward=float(rank))
    found = measurement(ledger, request(2))
    assert found["throughput"] == pytest.approx(16 / 0.05)
    assert found["data_wait_share"] == pytest.approx(0.01 / 0.05)
    waits = {one["rank"]: one["rank_wait_share"] for one in found["ranks"]}
    assert waits[0] == pytest.approx(1 / 0.05)
    assert waits[1] == 0
    assert memory_over_ranks(ledger.trained, "cuda").peak_memory_bytes == 1001
    assert memory_over_ranks(ledger.trained, "cpu").peak_memory_bytes == 2001  # they share it


def test_a_step_counts_when_all_ranks_have_made_it() -> None:
    ledger = opened(world=2)
    say(ledger, 100, [0.05] * 40, rank=0)
    assert not ledger.warm_up
    say(ledger, 101, [0.05] * 5, rank=1)
    assert len(ledger.warm_up) + len(ledger.window) == 5


@pytest.mark.case("C01")
def test_skipped_updates_bring_nothing_also_when_that_is_known_late() -> None:
    ledger = opened()
    say(ledger, 100, [0.05] * 40)
    indices = [step.index for step in ledger.window]
    ledger.hear(100, {"rank": 0, "world_size": 1, "bye": {"skipped": indices[::2]}}, 0.0)
    found = measurement(ledger, request())
    assert found["skipped_steps"] == len(indices[::2])
    assert found["throughput"] < 8 / 0.05 * 0.6


def test_a_script_that_ends_early_is_measured_by_its_last_steps() -> None:
    ledger = opened(plan=WindowPlan(min_seconds=50.0, max_seconds=100.0, warm_load_seconds=50.0))
    say(ledger, 100, [0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    ledger.finish()
    assert [step.seconds for step in ledger.window] == [0.1] * 4


def test_samples_that_cannot_be_seen_are_those_asked_for() -> None:
    ledger = opened()
    say(ledger, 100, [0.05] * 40, samples=None, micro=3)
    assert {step.samples for step in ledger.window} == {12}


def test_a_process_that_trains_nothing_is_no_rank() -> None:
    ledger = Ledger(world_size=1, plan=PLAN, micro_batch_size=1)
    ledger.hear(7, {"rank": 0, "began": True}, 0.0)
    ledger.hear(8, {"rank": 0, "failure": {"chain": []}}, 0.0)
    assert ledger.began
    assert ledger.trained == []


@pytest.mark.case("D11")
def test_each_rank_tells_its_own_samples_and_real_tokens_of_a_step() -> None:
    ledger = opened(world=2)
    for rank, tokens in enumerate((40, 64)):
        say(ledger, 100 + rank, [0.1] * 40, rank=rank, tokens=tokens)
    short, long = measurement(ledger, request(2))["ranks"]
    assert (short["samples_per_step"], long["samples_per_step"]) == (8, 8)
    assert (short["tokens_per_step"], long["tokens_per_step"]) == (40, 64)
    unseen = opened()
    say(unseen, 100, [0.1] * 40)
    assert measurement(unseen, request())["ranks"][0]["tokens_per_step"] is None
