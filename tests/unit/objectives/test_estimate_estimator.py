"""The pieces add up to the worst case itself, families share them, and what cannot be played says why.

Small models of plain torch: no library to import, milliseconds each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from objectives.config import TrainingConfig
from objectives.estimate import CATEGORIES, Estimator, predict
from objectives.estimate.rehearsal import Rehearsal
from objectives.trial.worst_case import run_worst_case

CPU = torch.device("cpu")
WIDTH, HIDDEN = 64, 256


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH), nn.Dropout(0.1))
            for _ in range(2)
        )
        self.head = nn.Linear(WIDTH, 8)
        self.unused = nn.Linear(WIDTH, WIDTH)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            rows = rows + block(rows)
        return self.head(rows)


class Rows:
    """A user's own workload."""

    def __init__(self, model: nn.Module, loss: Callable[..., Any] | None, asked: list[int]) -> None:
        self.model = model
        self._loss, self._asked = loss, asked

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, int]:
        rows, labels = batch
        if self._loss is not None:
            return self._loss(model, rows, labels)
        total = nn.functional.cross_entropy(model(rows).float(), labels, reduction="sum", ignore_index=-100)
        return total, int((labels != -100).sum())

    def longest(self, micro_batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        self._asked.append(micro_batch_size)
        labels = torch.arange(micro_batch_size) % 8
        labels[-1:] = -100 if micro_batch_size > 1 else 0
        return torch.ones(micro_batch_size, WIDTH), labels

    def checkpoint_blocks(self) -> list[nn.Module]:
        return list(self.model.blocks)  # type: ignore[arg-type]


class Mine:
    unit = "samples"

    def __init__(self, loss: Callable[..., Any] | None = None) -> None:
        self.loss, self.built = loss, 0
        self.asked: list[int] = []

    def build(self, device: torch.device, seed: int) -> Rows:
        self.built += 1
        with torch.device(device):
            return Rows(Blocks(), self.loss, self.asked)


def config(**values: Any) -> TrainingConfig:
    return TrainingConfig(**{"micro_batch_size": 4, "accumulation_steps": 4, **values})


def played_whole(objective: Mine, wanted: TrainingConfig) -> int:
    """The peak of the worst case as a run makes it: two updates, whole."""
    rehearsal = Rehearsal(objective, wanted, CPU, seed=0, max_grad_norm=1.0)
    batch, _ = rehearsal.longest(wanted.micro_batch_size)
    with rehearsal._played():
        trainer = rehearsal.with_optimizer(wanted.optimizer)
        run_worst_case(trainer, batch, accumulation_steps=wanted.accumulation_steps, synchronize=lambda: None)
    return rehearsal._counter.peak.total_bytes


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed", "fp16-mixed", "bf16-true"])
@pytest.mark.parametrize("optimizer", ["adamw", "adamw-foreach", "adamw-fused"])
@pytest.mark.parametrize(("size", "steps"), [(1, 4), (400, 2), (400, 1)])
def test_pieces_add_up_to_the_worst_case(precision: str, optimizer: str, size: int, steps: int) -> None:
    wanted = config(micro_batch_size=size, accumulation_steps=steps, precision=precision, optimizer=optimizer)
    made = predict(Mine(), wanted, device=CPU)
    assert made.note is None
    assert made.peak_memory_bytes == pytest.approx(played_whole(Mine(), wanted), abs=16)  # the losses' own numbers
    assert sum(made.categories.values()) == made.peak_memory_bytes


@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
def test_the_split_knows_the_model(checkpointing: str) -> None:
    made = predict(Mine(), config(activation_checkpointing=checkpointing, micro_batch_size=400), device=CPU)
    parameters = sum(p.numel() for p in Blocks().parameters()) * 4
    trained = parameters - (WIDTH * WIDTH + WIDTH) * 4
    assert set(made.categories) == set(CATEGORIES)
    assert made.categories["parameters"] == parameters
    assert made.categories["optimizer_state"] == pytest.approx(2 * trained, abs=64)
    assert made.categories["gradients"] == trained
    assert made.operator_at_peak.startswith("aten.")


def test_checkpointing_and_a_smaller_batch_need_less() -> None:
    sizes = [
        predict(Mine(), config(activation_checkpointing=kind, micro_batch_size=size), device=CPU).peak_memory_bytes
        for kind, size in (("none", 800), ("selective", 800), ("full", 800), ("full", 200))
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 4


def test_foreach_needs_a_copy_of_the_parameters_that_fused_does_not() -> None:
    peaks = {
        name: predict(Mine(), config(micro_batch_size=1, optimizer=name), device=CPU)
        for name in ("adamw-foreach", "adamw-fused")
    }
    assert peaks["adamw-foreach"].operator_at_peak == "aten._foreach_sqrt.default"
    assert peaks["adamw-foreach"].peak_memory_bytes > peaks["adamw-fused"].peak_memory_bytes


def test_many_sizes_are_interpolated_and_right() -> None:
    sizes = (1, 2, 4, 5, 8, 10, 16, 20, 25, 40, 50, 80, 100, 200, 400, 800)
    objective = Mine()
    estimator = Estimator(objective, device=CPU)
    wanted = [config(micro_batch_size=size) for size in sizes]
    made = dict(estimator.predict_all(wanted))
    assert len(objective.asked) < len(sizes)
    for each in wanted:
        alone = predict(Mine(), each, device=CPU).peak_memory_bytes
        assert made[each].peak_memory_bytes == pytest.approx(alone, rel=0.005)


def test_a_family_is_built_once_whatever_the_hosts_knobs_are() -> None:
    objective = Mine()
    estimator = Estimator(objective, device=CPU)
    wanted = [
        config(micro_batch_size=size, loader_workers=workers, optimizer=optimizer)
        for size in (1, 2, 4)
        for workers in (0, 1)
        for optimizer in ("adamw", "adamw-fused")
    ]
    made = dict(estimator.predict_all(wanted))
    assert objective.built == 1
    assert set(made) == set(wanted)


def test_what_fails_says_why_and_harms_no_other() -> None:
    def breaks(model: nn.Module, rows: torch.Tensor, _labels: torch.Tensor) -> Any:
        if not torch.is_autocast_enabled("cpu"):
            raise ZeroDivisionError("this loss wants autocast")
        return model(rows).float().sum(), len(rows)

    made = dict(
        Estimator(Mine(breaks), device=CPU).predict_all([config(), config(precision="bf16-mixed"), config(loss="full")])
    )
    assert "this loss wants autocast" in str(made[config()].note)
    assert made[config()].peak_memory_bytes is None
    assert made[config(precision="bf16-mixed")].peak_memory_bytes


def test_a_size_that_only_a_run_knows_is_not_predicted() -> None:
    def routed(model: nn.Module, rows: torch.Tensor, _labels: torch.Tensor) -> Any:
        chosen = model(rows).sum(1) > 0
        return model(rows[chosen]).float().sum(), len(rows)

    made = predict(Mine(routed), config(), device=CPU)
    assert made.peak_memory_bytes is None
    assert "not predictable" in str(made.note)


def test_a_printed_loss_is_guessed_and_said_so() -> None:
    def prints(model: nn.Module, rows: torch.Tensor, _labels: torch.Tensor) -> Any:
        total = model(rows).float().sum()
        return total, len(rows) + int(float(total) > 1)

    made = predict(Mine(prints), config(), device=CPU)
    assert made.peak_memory_bytes
    assert made.wide
    assert "0 was taken" in str(made.note)


@pytest.mark.parametrize("values", [{"compile": "default"}, {"attention": "flash_attention_2"}])
def test_what_is_substituted_gets_the_wide_bar(values: dict[str, str]) -> None:
    made = predict(Mine(), config(**values), device=CPU)
    assert made.peak_memory_bytes == predict(Mine(), config(), device=CPU).peak_memory_bytes
    assert made.wide
    assert made.note


def test_cuda_without_a_device_is_predicted_by_the_cpu_and_says_so() -> None:
    made = predict(Mine(), config(), device="cuda")
    assert made.peak_memory_bytes
    assert ("no cuda device here" in str(made.note)) is not torch.cuda.is_available()


def test_a_workload_that_cannot_be_built_without_values_says_why() -> None:
    class Reads(Mine):
        def build(self, device: torch.device, seed: int) -> Rows:
            float(torch.ones((), device=device))
            return super().build(device, seed)

    made = predict(Reads(), config(), device=CPU)
    assert made.peak_memory_bytes is None
    assert "not predictable" in str(made.note)


def test_the_workloads_own_optimizer_is_played() -> None:
    class Own(Mine):
        def build(self, device: torch.device, seed: int) -> Rows:
            made = super().build(device, seed)
            made.optimizer = lambda parameters: torch.optim.SGD(parameters, lr=0.1)  # type: ignore[attr-defined]
            return made

    made = predict(Own(), config(), device=CPU)
    assert made.categories["optimizer_state"] == 0


def test_an_optimizer_that_cannot_be_made_costs_the_others_nothing() -> None:
    made = dict(Estimator(Mine(), device=CPU).predict_all([config(optimizer="adamw-none"), config()]))
    assert made[config()].peak_memory_bytes
    assert "adamw-none" in str(made[config(optimizer="adamw-none")].note)
