"""The training step: the gradient does not depend on how a global batch is split, and only applied updates count."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from objectives import knobs
from objectives.config import TrainingConfig
from objectives.trial.setup import Setup
from objectives.trial.trainer import SKIPS_IN_A_ROW, NumericalFault, Trainer, move
from objectives.trial.worst_case import run_worst_case
from tests.workloads.tests_paced import PacedWorkload
from tests.workloads.tests_tiny_lm import TinyWorkload, make_llama


def make_setup(**config: Any) -> Setup:
    torch.manual_seed(0)
    workload = TinyWorkload(make_llama())
    setup = Setup(device=torch.device("cpu"), workload=workload, config=TrainingConfig.from_mapping(config))
    knobs.apply_all(setup)
    return setup


def gradient_of_a_global_batch(micro_batch_size: int, *, precision: str = "fp32") -> torch.Tensor:
    """The normalised, unclipped gradient of the eight sentences, as one vector."""
    setup = make_setup(micro_batch_size=micro_batch_size, accumulation_steps=8 // micro_batch_size, precision=precision)
    trainer = Trainer(setup, max_grad_norm=1e9)
    sentences = setup.workload.dataset()
    for start in range(0, 8, micro_batch_size):
        samples = [sentences[index] for index in range(start, start + micro_batch_size)]
        trainer.micro_step(trainer.place(setup.workload.collate(samples)))
    trainer._normalise_gradients()
    return torch.cat([p.grad.flatten() for p in setup.model.parameters() if p.grad is not None])


@pytest.mark.case("B01", "B02")
@pytest.mark.parametrize("micro_batch_size", [1, 2, 4])
def test_the_gradient_is_that_of_the_whole_batch(micro_batch_size: int) -> None:
    whole = gradient_of_a_global_batch(8)
    split = gradient_of_a_global_batch(micro_batch_size)
    assert float((split - whole).norm() / whole.norm()) < 1e-5  # a mean of means is off by 0.2 and more


@pytest.mark.case("B01")
def test_in_bf16_the_split_stays_within_rounding() -> None:
    whole = gradient_of_a_global_batch(8, precision="bf16-mixed")
    split = gradient_of_a_global_batch(2, precision="bf16-mixed")
    assert float((split - whole).norm() / whole.norm()) < 2e-2


@pytest.mark.case("C01")
def test_skipped_updates_are_not_applied_and_end_the_run() -> None:
    setup = make_setup(micro_batch_size=8, precision="fp16-mixed")
    before = [p.detach().clone() for p in setup.model.parameters()]
    healthy = setup.workload.loss
    setup.workload.loss = lambda model, batch: (healthy(model, batch)[0] * float("inf"), 1)  # type: ignore[method-assign]
    trainer = Trainer(setup, max_grad_norm=1.0)
    batch = setup.workload.longest(8)

    def update() -> bool:
        trainer.micro_step(trainer.place(batch))
        return trainer.update().applied

    assert [update() for _ in range(SKIPS_IN_A_ROW - 1)] == [False] * (SKIPS_IN_A_ROW - 1)
    assert trainer.applied_steps == 0
    assert all(torch.equal(a, b) for a, b in zip(before, setup.model.parameters(), strict=True))
    with pytest.raises(NumericalFault, match="in a row"):
        update()


@pytest.mark.case("C03", "C01")
def test_a_loss_that_is_not_finite_is_a_fault_even_without_a_scaler() -> None:
    setup = make_setup(micro_batch_size=2)
    with torch.no_grad():
        next(setup.model.parameters()).fill_(float("nan"))
    trainer = Trainer(setup, max_grad_norm=1.0)
    with pytest.raises(NumericalFault, match="nan"):
        run_worst_case(trainer, setup.workload.longest(2), accumulation_steps=1, synchronize=lambda: None)


@pytest.mark.case("D02")
@pytest.mark.parametrize("precision", ["fp32", "fp16-mixed", "bf16-true"])
def test_the_worst_case_has_optimizer_state_and_two_applied_updates(precision: str) -> None:
    setup = make_setup(micro_batch_size=2, accumulation_steps=4, precision=precision)
    trainer = Trainer(setup, max_grad_norm=1.0)
    assert setup.optimizer is not None
    assert not setup.optimizer.state
    worst = run_worst_case(trainer, setup.workload.longest(2), accumulation_steps=4, synchronize=lambda: None)
    assert trainer.applied_steps >= 2
    assert worst.updates >= 2
    assert all("exp_avg" in state for state in setup.optimizer.state.values())


def test_a_global_batch_of_padding_alone_is_refused() -> None:
    setup = make_setup(micro_batch_size=2)
    setup.workload.loss = lambda model, batch: (model(batch["input_ids"]).logits.sum() * 0, 0)  # type: ignore[method-assign]
    trainer = Trainer(setup, max_grad_norm=1.0)
    trainer.micro_step(trainer.place(setup.workload.longest(2)))
    with pytest.raises(ValueError, match="padding"):
        trainer.update()


def test_a_batch_of_any_nesting_is_moved_and_plain_values_stay() -> None:
    tensor = torch.ones(2)
    moved = move({"a": [tensor, 3], "b": (tensor, "text")}, torch.device("meta"))
    assert moved["a"][0].device.type == "meta"
    assert moved["b"][0].device.type == "meta"
    assert (moved["a"][1], moved["b"][1]) == (3, "text")


def test_the_users_own_optimizer_is_used() -> None:
    workload = PacedWorkload()
    setup = Setup(device=torch.device("cpu"), workload=workload, config=TrainingConfig())
    knobs.apply_all(setup)
    assert type(setup.optimizer).__name__ == "SleepyOptimizer"
