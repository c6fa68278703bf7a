"""What earlier studies teach: who is alike, how much is taken, and that nothing of them enters the front."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from search_fakes import FACTS, GIB, START, spec_of, trial_of

from objectives.config import TrainingConfig
from objectives.contract import ObjectiveReference
from objectives.knobs import facts_to_mapping
from storage.records import StudyRecord
from tuner.search.transfer import (
    ALIKE,
    LEAST_SIMILARITY,
    MOST_STUDIES,
    MOST_TRIALS,
    Past,
    Profile,
    earlier_studies,
    profile_of,
    seen_of,
    sentence,
    similarity,
)

LLAMA = Profile(
    device="H200", kind="causal_lm", family="llama", parameters=10**9, sequence_length=4096, global_batch=256
)


def past(name: str = "old", trials: int = 10, **changes: Any) -> Past:
    rows = [
        trial_of(number, TrainingConfig(micro_batch_size=number + 1), throughput=100.0 + number, windows=2)
        for number in range(trials)
    ]
    return Past(study_id=1, name=name, profile=replace(LLAMA, **changes), trials=rows)


def test_the_same_again_is_most_alike_and_every_difference_takes_something() -> None:
    assert similarity(LLAMA, LLAMA) == ALIKE
    shares = [
        similarity(LLAMA, replace(LLAMA, **changes))
        for changes in (
            {"parameters": 2 * 10**9}, {"parameters": None}, {"sequence_length": 2048}, {"global_batch": 512},
            {"family": "gpt2"}, {"adapters": True},
        )
    ]  # fmt: skip
    assert all(LEAST_SIMILARITY < share < ALIKE for share in shares)
    assert similarity(LLAMA, replace(LLAMA, parameters=10**12)) < shares[0]


@pytest.mark.parametrize("changes", [{"device": "A100"}, {"kind": "image_classifier"}, {"kind": "mine:Own"}])
def test_another_device_or_kind_teaches_nothing(changes: dict[str, Any]) -> None:
    assert similarity(LLAMA, replace(LLAMA, **changes)) == 0.0
    assert earlier_studies(LLAMA, [past(**changes)]) == ()


def test_the_most_similar_come_first_and_all_is_bounded() -> None:
    many = [past(f"s{number}", trials=90, parameters=10**9 * 2**number) for number in range(8)]
    found = earlier_studies(LLAMA, many[::-1])
    assert [each.name for each in found] == ["s0", "s1", "s2", "s3"][:MOST_STUDIES]
    assert MOST_TRIALS - MOST_STUDIES <= sum(len(each.seen) for each in found) <= MOST_TRIALS
    throughputs = [each.throughput for each in found[0].seen]
    assert (max(throughputs), min(throughputs)) == (189.0, 100.0)


def test_too_few_completed_trials_teach_nothing() -> None:
    few = past(trials=2)
    failed = [trial_of(9, outcome="device_oom", throughput=0.0), trial_of(10, outcome="crashed", throughput=None)]
    assert earlier_studies(LLAMA, [few, Past(study_id=2, name="x", profile=LLAMA, trials=failed)]) == ()
    assert earlier_studies(LLAMA, []) == ()
    assert sentence(()) is None


def test_a_trial_is_told_as_the_planner_takes_it() -> None:
    trial = trial_of(
        3, throughput=50.0, windows=3, seconds=12.0,
        metrics={"data_stall_share": 0.25, "compile_seconds": 4.0, "setup_seconds": 2.0},
    )  # fmt: skip
    seen = seen_of(trial)
    assert (seen.throughput, seen.runs, seen.data_stall_share, seen.compile_seconds) == (50.0, 3, 0.25, 4.0)
    assert seen.peak_memory_bytes == GIB
    assert seen.certain
    assert not seen.is_bound
    assert seen_of(replace(trial, outcome="pruned")).is_bound


def test_what_is_taken_over_is_said_with_the_way_out() -> None:
    told = sentence(earlier_studies(LLAMA, [past("a"), past("b", parameters=2 * 10**9)]))
    assert told == (
        "starts from 2 earlier studies: a (10 trials, 95% alike), b (10 trials, 93% alike); `transfer: false` in the "
        "spec starts from nothing"
    )


def test_a_profile_is_read_from_what_preparation_found() -> None:
    settings = {"model": {"config": {"model_type": "llama"}}, "data": {"sequence_length": 4096}, "lora": {"r": 8}}
    spec = spec_of(objective=ObjectiveReference(kind="causal_lm", settings=settings))
    stored = {"facts": facts_to_mapping(FACTS), "data": {"parameters": 123}}
    study = StudyRecord(
        id=1, name="s", status="finished", spec={}, identity={}, created_at=START, device="H200", facts=stored
    )
    found = profile_of(study, spec)
    assert found == Profile(
        device="H200", kind="causal_lm", family="llama", parameters=123, sequence_length=4096, global_batch=64,
        adapters=True,
    )  # fmt: skip
    assert profile_of(replace(study, device=None), spec) is None
    assert profile_of(replace(study, facts={}), spec) is None
    own = spec_of(objective=ObjectiveReference(kind="mine:Own", settings={"width": 3}))
    assert profile_of(study, own) != profile_of(
        study, spec_of(objective=ObjectiveReference(kind="mine:Own", settings={"width": 4}))
    )
