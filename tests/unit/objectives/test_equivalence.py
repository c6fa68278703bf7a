"""Mistake 6, planted and clean: the gradient shows what the loss curve does not; no clean workload is accused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from longer_runs import run_body

from objectives.measure.gradients import bound_of, by_parameter, distance, fitted
from objectives.trial.equivalence import run
from objectives.trial.loss_curve import band_of, leaves_at
from objectives.trial.settled import without_chance
from objectives.trial.splits import Split, reference_split, uneven_batch
from tuner.answer.verify import faults, verdict_of


def verified(
    kind: str, *, micro: int = 2, steps: int = 4, precision: str = "fp32", updates: int = 0, whole: bool = True
) -> dict[str, Any]:
    baseline = {"micro_batch_size": max(micro // 2, 1), "accumulation_steps": micro * steps // max(micro // 2, 1)}
    return run_body(
        run,
        kind if ":" in kind else f"planted_accumulation:{kind}",
        {"micro_batch_size": micro, "accumulation_steps": steps, "precision": precision},
        {"baseline": baseline, "whole_fits": whole, "curve_updates": updates},
    )


@pytest.mark.case("B01")
@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("MeanTimesSamples", "mean_of_means"),
        ("MeanPerMicroBatch", "mean_of_means"),
        ("PaddingCounted", "units"),
        ("Emptied", "accumulation"),
    ],
)
def test_a_fault_is_found_and_named(kind: str, fault: str) -> None:
    found = verified(kind)
    assert found["fault"]["kind"] == fault
    assert found["gradient"]["distance"] > 1e3 * found["gradient"]["bound"]
    assert verdict_of(found) == "broken"
    assert faults(found)[0].name == fault


@pytest.mark.case("B01")
def test_fp32_separates_the_mean_of_means_from_right_normalisation_by_orders_of_magnitude() -> None:
    wrong, right = verified("MeanTimesSamples"), verified("Right")
    assert wrong["gradient"]["distance"] > 1e4 * right["gradient"]["distance"]
    assert right["gradient"]["distance"] < 1e-6


@pytest.mark.case("B01")
def test_the_loss_curve_does_not_show_what_the_gradient_shows() -> None:
    found = verified("MeanTimesSamples", updates=4)
    curve = found["loss_curve"]
    assert all(abs(a / b - 1) < 0.01 for a, b in zip(curve["examined"], curve["reference"], strict=True))
    assert found["gradient"]["distance"] > 0.1


@pytest.mark.parametrize("kind", ["Right", "WithDropout", "EqualSamples", "ScheduledByUpdate"])
def test_no_clean_twin_is_accused(kind: str) -> None:
    found = verified(kind, steps=2, precision="bf16-mixed", updates=2)
    assert (verdict_of(found), faults(found)) == ("fine", [])
    assert found["loss_curve"]["leaves_at"] is None
    assert [each["precision"] for each in found["gradients"]] == ["fp32", "bf16-mixed"]


@pytest.mark.parametrize("micro", [1, 2, 4, 8])
def test_right_code_is_accepted_at_every_split(micro: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real Llama on sentences of 5 to 12 tokens, in fp32 and in bf16."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "workloads"))
    for whole in (True, False):
        found = verified("tests_tiny_lm:TinyLM", micro=micro, steps=8 // micro, precision="bf16-mixed", whole=whole)
        assert [each["precision"] for each in found["gradients"]] == ["fp32", "bf16-mixed"]
        assert verdict_of(found) == "fine"
        assert all(0 < each["distance"] < each["bound"] for each in found["gradients"])


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("Normed", "batch norm: layer.3.norm"),
        ("Contrastive", "contrastive"),
        ("Auxiliary", "auxiliary"),
        ("Noisy", "random numbers"),
    ],
)
def test_a_gradient_that_depends_on_the_micro_batch_by_design_is_not_comparable(kind: str, reason: str) -> None:
    found = verified(kind)
    assert verdict_of(found) == "not_comparable"
    assert reason in found["not_comparable"]


@pytest.mark.case("B06")
def test_a_schedule_that_follows_the_micro_batches_is_named() -> None:
    found = verified("ScheduledByMicroBatch", steps=4, updates=4)
    assert found["scheduler_steps_per_update"] > 3
    assert [each.name for each in faults(found)] == ["scheduler_per_micro_batch"]


@pytest.mark.case("I11")
def test_parameters_that_no_gradient_reaches_are_named() -> None:
    found = verified("Unused")
    assert found["without_gradient"] == ["forgotten.weight", "forgotten.bias"]
    assert verdict_of(found) == "improve"


def test_samples_behind_the_last_whole_window_are_counted() -> None:
    found = verified("Right", micro=4, steps=3)
    assert (found["samples"], found["lost_samples"]) == (40, 4)
    assert [each.name for each in faults(found)] == ["lost_last_window"]


@pytest.mark.case("C12")
def test_updates_that_bf16_weights_would_lose_are_counted() -> None:
    """A learning rate of 1e-4 against weights of 0.02 to 1, which bf16 knows to one part in 256."""
    share = verified("Right", updates=3)["lost_update_shares"]["bf16-true"]
    assert 0.8 < share < 1
    assert 0.8 < verified("Right", precision="bf16-true", updates=3)["lost_update_shares"]["bf16-true"] <= 1


def test_the_scaler_of_fp16_does_not_hide_the_gradient() -> None:
    found = verified("Right", precision="fp16-mixed")
    assert verdict_of(found) == "fine"


def test_a_reference_is_the_whole_batch_where_it_fits_and_never_the_same_split() -> None:
    def against(micro: int, steps: int, baseline: int, *, fits: bool) -> tuple[int, int] | None:
        found = reference_split(
            Split(micro_batch_size=micro, accumulation_steps=steps), baseline=baseline, whole_fits=fits
        )
        return None if found is None else (found.micro_batch_size, found.accumulation_steps)

    assert against(2, 4, 1, fits=True) == (8, 1)
    assert against(2, 4, 1, fits=False) == (1, 8)
    assert against(8, 1, 2, fits=True) == (2, 4)
    assert against(4, 2, 4, fits=False) == (2, 4)
    assert against(4, 2, 3, fits=False) == (2, 4)
    assert against(1, 4, 1, fits=False) == (4, 1)
    assert against(1, 1, 1, fits=True) is None


def test_the_batch_with_the_most_unequal_micro_batches_is_taken() -> None:
    lengths = [5, 5, 5, 5, 1, 9, 5, 5, 5, 6, 5, 5]
    assert uneven_batch(lengths, 12, Split(micro_batch_size=1, accumulation_steps=4)) == 1
    assert uneven_batch(None, 12, Split(micro_batch_size=1, accumulation_steps=4)) == 0


def test_distances_and_bounds() -> None:
    one, two = {"a": torch.ones(4), "b": torch.zeros(2)}, {"a": torch.ones(4) * 2}
    assert distance(two, one) == pytest.approx(1.0)
    assert distance(one, one) == 0.0
    assert distance(one, {"a": torch.full((4,), float("nan"))}) == float("inf")
    assert by_parameter(two, one)[0] == ("a", pytest.approx(1.0))
    assert fitted({"a": torch.tensor([2.0, 3.0])}, ({"a": torch.tensor([1.0, 0.0])}, {"a": torch.tensor([0.0, 1.0])}))[
        :2
    ] == pytest.approx((2, 3))
    assert bound_of("fp32", None) == 1e-5
    assert bound_of("bf16-mixed", 1e-2) == pytest.approx(3e-2)
    assert bound_of("bf16-mixed", 5.0) == 0.1


def test_where_a_curve_leaves_its_band() -> None:
    assert leaves_at([1, 1, 1.2, 1.3], [1, 1, 1, 1], 0.05) == 2
    assert leaves_at([1, 1.2, 1, 1.0], [1, 1, 1, 1], 0.05) is None
    assert leaves_at([1, float("nan")], [1, 1], 0.05) == 1
    assert band_of([1.0, 2.0], [1.0, 2.2], ["fp32"]) == pytest.approx(0.3)


def test_chance_is_taken_out_of_modules_and_configurations() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=32))
    found = without_chance(model)
    assert any(name.endswith("drop.p") for name in found)
    assert without_chance(model) == ()
    model.train()
    tokens = torch.arange(8)[None]
    assert torch.equal(model(tokens).logits, model(tokens).logits)
