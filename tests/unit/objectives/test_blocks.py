"""Blocks: the composed step equals the whole one, and every configuration trains on the same samples."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from objectives import knobs
from objectives.config import TrainingConfig
from objectives.measure.timing import open_timer
from objectives.trial.batches import PlannedBatches, spread
from objectives.trial.blocks import FEWEST_MICRO_STEPS, BlockLoop, steps_in_block
from objectives.trial.protocol import WindowPlan
from objectives.trial.setup import Setup
from objectives.trial.trainer import Trainer
from objectives.trial.worst_case import WorstCase
from tests.workloads.tests_paced import MICRO_SECONDS, UPDATE_SECONDS, PacedWorkload


class Listening:
    """A channel that keeps what is sent."""

    stop_reason: str | None = None
    stop_requested = False

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def send(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))


def measured(workload: PacedWorkload, *, micro_steps: int, seconds: float = 0.6) -> dict[str, Any]:
    config = TrainingConfig(micro_batch_size=1, accumulation_steps=8)
    setup = Setup(device=torch.device("cpu"), workload=workload, config=config)
    knobs.apply_all(setup)
    window = WindowPlan(min_seconds=seconds, max_seconds=seconds, target_half_width=0)
    trainer = Trainer(setup, max_grad_norm=1.0)
    loop = BlockLoop(Listening(), setup, trainer, open_timer(torch.device("cpu")), window, micro_steps)  # type: ignore[arg-type]
    loop.warm_up()
    loop.measure()
    return loop.measurement() | {"data_stall_share": loop.stall()}


def test_the_composed_step_equals_the_whole_step() -> None:
    whole = measured(PacedWorkload(), micro_steps=8)
    composed = measured(PacedWorkload(), micro_steps=3)
    assert (whole["composed"], composed["composed"]) == (False, True)
    assert composed["throughput"] == pytest.approx(whole["throughput"], rel=0.2)
    expected = 8 * MICRO_SECONDS + UPDATE_SECONDS
    assert expected <= composed["median_step_seconds"] < 2 * expected


@pytest.mark.case("E06")
def test_a_slow_loader_shows_as_stall() -> None:
    assert measured(PacedWorkload(load_seconds=0.04), micro_steps=3)["data_stall_share"] > 0.6
    assert measured(PacedWorkload(), micro_steps=3)["data_stall_share"] < 0.3


def test_a_block_is_cut_only_as_far_as_twenty_fit_the_window() -> None:
    worst = WorstCase(updates=2, seconds=0.5, micro_seconds=0.1, optimizer_seconds=0.05)
    assert steps_in_block(2, worst, 8.0) == 2
    assert steps_in_block(64, worst, 8.0) == FEWEST_MICRO_STEPS
    assert steps_in_block(64, worst, 40.0) == 19


@pytest.mark.parametrize(("total", "wanted"), [(8, 3), (8, 8), (5, 1), (3, 7)])
def test_chosen_micro_batches_are_distinct_and_spread(total: int, wanted: int) -> None:
    chosen = spread(total, wanted)
    assert len(set(chosen)) == min(total, wanted)
    assert all(0 <= index < total for index in chosen)
    assert list(chosen) == sorted(chosen)


@pytest.mark.case("B07")
@pytest.mark.parametrize("micro_batch_size", [1, 2, 4, 8])
def test_every_split_trains_on_the_same_samples_in_the_same_order(micro_batch_size: int) -> None:
    batches = iter(
        PlannedBatches(
            samples=24,
            lengths=None,
            micro_batch_size=micro_batch_size,
            accumulation_steps=8 // micro_batch_size,
            batching="padded",
            steps_in_block=8,
        )
    )
    seen = [index for _ in range(3 * 8 // micro_batch_size) for index in next(batches)]
    assert seen == list(range(24))


@pytest.mark.case("B04")
def test_data_smaller_than_one_global_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="no optimizer step"):
        next(
            iter(
                PlannedBatches(
                    samples=3,
                    lengths=None,
                    micro_batch_size=1,
                    accumulation_steps=4,
                    batching="padded",
                    steps_in_block=4,
                )
            )
        )
