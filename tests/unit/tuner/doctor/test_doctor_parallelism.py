"""Mistake 4: each planted fault is found, its clean twin is not accused."""

from __future__ import annotations

from typing import Any

import pytest
from doctor_studies import Tried, check, figure, finding, study

from objectives.contract import ObjectiveReference
from tuner.doctor.parallel_plan import ParallelPlan, problems

NAME = "parallelism"
EVEN = {"ranks": 8, "micro_batch": 4, "accumulation": 2}


def plan(**values: Any) -> ParallelPlan:
    made = {**EVEN, **values}
    replicas = made["ranks"] // (made.get("tensor", 1) * made.get("pipeline", 1) * made.get("context", 1))
    return ParallelPlan(**{"global_batch": made["micro_batch"] * made["accumulation"] * replicas, **made})


UNEVEN = [
    ("ranks", {"tensor": 3, "ranks": 8}),
    ("global_batch", {"global_batch": 60}),
    ("global_batch", {"tensor": 4, "global_batch": 64}),  # as if each of the 8 ranks had samples of its own
    ("heads", {"tensor": 2, "heads": 9}),
    ("heads", {"tensor": 4, "heads": 32, "kv_heads": 2}),
    ("layers", {"pipeline": 4, "layers": 30}),
    ("stages", {"pipeline": 4, "micro_batch": 8, "pipeline_micro_batch": 4}),
    ("pipeline_micro_batch", {"pipeline": 2, "micro_batch": 9, "pipeline_micro_batch": 2}),
    ("sequence", {"tensor": 2, "sequence_length": 4095}),
    ("sequence", {"tensor": 2, "context": 2, "sequence_length": 4098}),
]


@pytest.mark.case("B02")
@pytest.mark.case("B12")
@pytest.mark.case("F04")
@pytest.mark.case("F11")
@pytest.mark.parametrize(("slug", "values"), UNEVEN, ids=lambda each: each if isinstance(each, str) else "")
def test_what_does_not_divide_is_named_with_the_nearest_that_does(slug, values):
    found = {each.slug: each for each in problems(plan(**values))}
    assert slug in found
    assert any(character.isdigit() for character in found[slug].fix)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"tensor": 2, "heads": 32, "kv_heads": 8},
        {"pipeline": 4, "layers": 32, "micro_batch": 8, "pipeline_micro_batch": 2},
        {"tensor": 2, "context": 2, "sequence_length": 4096},
    ],
    ids=["data", "tensor", "pipeline", "context"],
)
def test_what_divides_is_not_accused(values):
    assert problems(plan(**values)) == []


def script(*options: str, ranks: int = 2, **settings: Any) -> dict[str, Any]:
    command = ["torchrun", "--nproc_per_node", str(ranks), "train.py", *options]
    return {"objective": ObjectiveReference(kind="script", settings={"command": command, **settings})}


@pytest.mark.parametrize(
    "options",
    [("--tensor-model-parallel-size", "2", "--num-attention-heads=7"), ("--parallelism.pipeline_parallel_degree=2",)],
)
def test_a_script_s_own_words_say_how_it_splits_the_model(options):
    result = check(study(Tried(), **script(*options)), NAME)
    assert result.verdict == "broken"
    assert "32" in result.summary or "heads" in result.summary


def test_a_script_whose_ranks_all_have_their_own_samples_is_fine():
    assert finding(study(Tried(), **script("--lr", "1e-4", "--tp")), NAME, "division").verdict == "fine"


def test_the_four_numbers_of_the_batch_are_told():
    assert (
        "micro-batch 8 x 4 accumulation steps x 2 ranks = 64"
        in finding(study(Tried(), **script()), NAME, "division").statement
    )


def ranks(**each: tuple[float, float]) -> dict[str, Any]:
    rows = [{"rank": number, "step_seconds": 0.1} for number in (0, 1)]
    for name, values in each.items():
        for row, value in zip(rows, values, strict=True):
            row[name] = value
    return {"ranks": rows}


@pytest.mark.parametrize(
    ("said", "word"),
    [
        pytest.param({"tokens_per_step": (900.0, 1500.0)}, "real tokens", id="padding"),
        pytest.param({"rank_wait_share": (0.4, 0.0)}, "waits", id="slow rank", marks=pytest.mark.case("F01")),
        pytest.param({"peak_memory_bytes": (10, 21)}, "peak memory", id="long sample", marks=pytest.mark.case("D11")),
        pytest.param({"data_wait_share": (0.5, 0.0)}, "waiting for data", id="starved rank"),
    ],
)
def test_ranks_with_unequal_work_are_found(said, word):
    found = finding(study(Tried(said=ranks(**said)), **script()), NAME, "rank_balance")
    assert found.verdict == "improve"
    assert word in found.statement
    assert found.runs


def test_ranks_that_do_the_same_are_not_accused():
    even = ranks(tokens_per_step=(1000.0, 1020.0), rank_wait_share=(0.02, 0.0), peak_memory_bytes=(10, 10))
    view = study(Tried(said=even), **script())
    assert check(view, NAME).verdict == "fine"
    assert figure(finding(view, NAME, "rank_balance"), "rank wait share", "baseline, rank 0") == 0.02


def test_several_ranks_that_said_nothing_are_open_and_one_rank_has_nothing_to_share():
    assert check(study(Tried(), **script()), NAME).verdict == "not_measured"
    assert check(study(Tried()), NAME).verdict == "fine"
    assert finding(study(Tried()), NAME, "rank_balance").verdict == "not_measured"


def test_a_model_s_own_shape_is_read():
    objective = ObjectiveReference(kind="causal_lm", settings={"model": {"config": {"num_attention_heads": 12}}})
    assert figure(finding(study(Tried(), objective=objective), NAME, "division"), "heads") == 12
