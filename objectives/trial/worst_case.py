"""The worst case a configuration must survive: longest batch, optimizer state present, second micro-batch of a window.

Peak memory is read here. Optimizer state appears with the first applied update (case D02), a gradient that is added to
lives beside the activations only from the second micro-batch on, and a loss scaler skips its first updates. So the
first *applied* update makes the state, from one micro-batch, and the second has two where the configuration accumulates
at all: there everything is present at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from objectives.trial.trainer import NumericalFault

if TYPE_CHECKING:
    import torch

    from objectives.contract import Batch
    from objectives.trial.trainer import Trainer, Update

APPLIED_UPDATES = 2


@dataclass(frozen=True, kw_only=True)
class WorstCase:
    """What the worst case showed beside its memory.

    Attributes:
        updates: Updates made, skipped ones included.
        seconds: They took together.
        micro_seconds: Seconds of the last micro-step: the first guess of how long a block will take.
        optimizer_seconds: Seconds of the last update.
    """

    updates: int
    seconds: float
    micro_seconds: float
    optimizer_seconds: float


def run_worst_case(
    trainer: Trainer,
    batch: Batch,
    *,
    accumulation_steps: int,
    synchronize: Callable[[], None],
    on_update: Callable[[Update, float, float], None] = lambda _update, _seconds, _loss: None,
) -> WorstCase:
    """Makes the updates.

    Args:
        trainer: On a model whose knobs are all applied.
        batch: One longest micro-batch, on the CPU; it is placed anew for every micro-step.
        accumulation_steps: Of the configuration; two micro-steps show what more would need.
        synchronize: Waits for the device.
        on_update: Called after each update with its seconds and its loss.

    Raises:
        NumericalFault: The loss of the worst-case batch is not finite.
    """
    updates, marks, started = 0, (0.0, 0.0, 0.0), time.perf_counter()
    while trainer.applied_steps < APPLIED_UPDATES:
        begun = start = time.perf_counter()
        for _ in range(min(accumulation_steps, 2) if trainer.applied_steps else 1):
            start = time.perf_counter()
            trainer.micro_step(trainer.place(batch))
            synchronize()
        middle = time.perf_counter()
        update = trainer.update()
        synchronize()
        marks = (start, middle, time.perf_counter())
        updates += 1
        on_update(update, marks[2] - begun, check_finite(update.loss, applied=update.applied))
    return WorstCase(
        updates=updates,
        seconds=marks[2] - started,
        micro_seconds=marks[1] - marks[0],
        optimizer_seconds=marks[2] - marks[1],
    )


def check_finite(loss: torch.Tensor, *, applied: bool) -> float:
    """The loss as a number. Waits for the device.

    Raises:
        NumericalFault: The loss is not finite although the update was applied: this precision cannot train this model.
    """
    value = float(loss)
    if applied and not (-float("inf") < value < float("inf")):
        raise NumericalFault(f"the loss is {value} in an update that was applied")
    return value
