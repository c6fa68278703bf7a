"""Mistakes 6 and 7: what verifications and profiles say, told with figures and a way out."""

from __future__ import annotations

from typing import Any

import pytest
from doctor_studies import Tried, check, figure, finding, run, study

NAME = "accumulation"
RIGHT = {
    "precision": "fp32", "micro_batch_size": 2, "accumulation_steps": 4, "reference_micro_batch_size": 8,
    "reference_accumulation_steps": 1, "distance": 2.5e-7, "bound": 1e-5, "scale": 0.0,
    "parameters": [{"name": "head.weight", "distance": 4e-7}],
}  # fmt: skip
CURVE = {"examined": [3.0, 2.5], "reference": [3.0, 2.51], "band": 0.02, "leaves_at": None}


def verified(**said: Any):
    verify = run("verify", trial_id=1, measurement={"gradient": RIGHT, "loss_curve": CURVE, **said})
    return study(Tried(knobs={"micro_batch_size": 8}), longer=[verify])


def test_right_normalisation_is_fine_and_its_numbers_are_there():
    assert check(verified(), NAME).verdict == "fine"
    found = finding(verified(), NAME, "gradient")
    assert figure(found, "distance of the gradients") == 2.5e-7
    assert figure(found, "distance", "head.weight") == 4e-7
    assert found.runs


@pytest.mark.case("B01")
def test_the_mean_of_means_is_found_though_its_loss_curve_looks_right():
    view = verified(gradient={**RIGHT, "distance": 0.3})
    assert finding(view, NAME, "gradient").verdict == "broken"
    assert "head.weight" in finding(view, NAME, "gradient").statement
    assert finding(view, NAME, "loss_curve").verdict == "fine"
    assert "num_items_in_batch" in finding(view, NAME, "gradient").advice[0].change


def test_a_gradient_that_depends_on_the_micro_batch_by_design_is_not_compared():
    result = check(verified(not_comparable="batch norm in layers.0", gradient=None), NAME)
    assert result.verdict == "not_comparable"
    assert "batch norm" in result.summary


def test_curves_that_part():
    view = verified(loss_curve={**CURVE, "leaves_at": 1})
    assert finding(view, NAME, "loss_curve").verdict == "improve"
    assert "update 2" in finding(view, NAME, "loss_curve").statement


@pytest.mark.parametrize(
    ("said", "question", "verdict"),
    [
        pytest.param({"without_gradient": ["a.weight"]}, "without_gradient", "broken", marks=pytest.mark.case("I11")),
        pytest.param({"scheduler_steps_per_update": 4.0}, "scheduler", "broken", marks=pytest.mark.case("B06")),
        pytest.param({"lost_samples": 3, "samples": 3}, "lost_windows", "broken", marks=pytest.mark.case("B04")),
        ({"lost_samples": 30, "samples": 1000}, "lost_windows", "improve"),
        ({"lost_samples": 5, "samples": 26805}, "lost_windows", "fine"),
        ({"scheduler_steps_per_update": 1.0}, "scheduler", "fine"),
        ({"without_gradient": []}, "without_gradient", "fine"),
    ],
)
def test_what_a_loop_around_accumulation_gets_wrong(said, question, verdict):
    assert finding(verified(**said), NAME, question).verdict == verdict


def test_nothing_verified_is_open():
    result = check(study(Tried()), NAME)
    assert result.verdict == "not_measured"
    assert "tuner verify s" in result.findings[0].measured_by


@pytest.mark.case("B07")
@pytest.mark.case("B12")
def test_a_batch_that_is_not_the_asked_one_is_broken():
    halved = Tried(knobs={"micro_batch_size": 4, "accumulation_steps": 8})
    assert finding(study(halved), NAME, "global_batch").verdict == "broken"
    assert finding(study(Tried()), NAME, "global_batch").verdict == "fine"


@pytest.mark.case("B04")
def test_fewer_rows_than_one_global_batch():
    assert finding(study(Tried(), data={"rows": 63}), NAME, "last_window").verdict == "broken"
    left = finding(study(Tried(), data={"rows": 130}), NAME, "last_window")
    assert (left.verdict, figure(left, "rows outside whole global batches")) == ("fine", 2)


def profiled(*findings: dict[str, Any], **said: Any):
    measurement = {
        "tool": "torch", "shares": {"matmul": 0.6, "copies": 0.1, "idle": 0.3}, "findings": list(findings),
        "operators": [{"name": "aten::mm", "seconds": 1.0, "share": 0.6, "calls": 10}], **said,
    }  # fmt: skip
    return study(Tried(), longer=[run("profile", trial_id=1, measurement=measurement)])


@pytest.mark.parametrize("kind", ["hidden_synchronisation", "wrong_device", "slow_path", "copy_bound"])
def test_waste_that_a_profile_shows_is_named_with_its_place_and_bound(kind):
    result = check(profiled({"kind": kind, "where": "layers.3", "text": "it does.", "share": 0.2}), "profiling")
    assert result.verdict == "improve"
    assert "layers.3" in result.summary
    (advice,) = result.advice
    assert advice.gain == pytest.approx(1.25)
    assert not advice.measured


def test_a_profile_without_waste_is_fine_and_says_where_the_time_goes():
    result = check(profiled(), "profiling")
    assert result.verdict == "fine"
    assert result.summary.index("matmul") < result.summary.index("idle")


def test_memory_at_the_peak_by_category_and_module():
    view = profiled(memory_by_category={"parameters": 10, "activations": 30}, memory_by_module={"layers": 40})
    found = finding(view, "profiling", "memory_at_the_peak")
    assert figure(found, "activations", "category") == 30
    assert figure(found, "layers", "module") == 40


def test_a_tool_that_is_not_there_measured_nothing():
    assert check(profiled(unavailable="nsys is not installed"), "profiling").verdict == "not_measured"
    assert check(study(Tried()), "profiling").verdict == "not_measured"


@pytest.mark.case("D08")
@pytest.mark.case("H05")
@pytest.mark.case("H11")
def test_steps_that_are_now_and_then_far_slower_are_told_where_shapes_cost():
    said = {"p95_step_seconds": 0.5, "median_step_seconds": 0.1}
    compiled = study(Tried(knobs={"compile": "reduce-overhead"}, said=said))
    found = finding(compiled, "profiling", "uneven_steps")
    assert found.verdict == "improve"
    assert "new shape" in found.statement
    assert figure(found, "p95 over median step") == 5.0
    even = {"p95_step_seconds": 0.11, "median_step_seconds": 0.1}
    assert finding(study(Tried(said=even), device="cuda"), "profiling", "uneven_steps").verdict == "fine"
    assert "uneven_steps" not in {each.name for each in check(study(Tried(said=said)), "profiling").findings}
