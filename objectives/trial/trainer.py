"""The training step itself: micro-batches whose loss is a sum over units, one update per global batch.

The gradient of an update is the gradient of (sum of losses) / (number of real units in the whole global batch),
however the global batch is split. The number of units is known only after the last micro-batch, so each backward
divides by a nominal number and the update corrects by nominal / real: exact, and no second pass over the data.
Averaging the means of micro-batches instead would weigh a token by the company it keeps, the old fault of many loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from objectives.knobs.memory_format import convert_batch

if TYPE_CHECKING:
    from objectives.contract import Batch
    from objectives.trial.setup import Setup

SKIPS_IN_A_ROW = 30
"""A gradient scaler halves its scale at each skipped step: 30 halvings from 65536 leave nothing to represent."""


class NumericalFault(ArithmeticError):
    """The loss or the gradient is not finite in this configuration, or nearly every update was skipped."""


@dataclass(frozen=True, kw_only=True)
class Update:
    """One optimizer step. ``loss``: mean per real unit, still on the device. ``applied``: False when it was skipped."""

    applied: bool
    units: int
    loss: torch.Tensor


def move(batch: Batch, device: torch.device) -> Batch:
    """A copy of the batch on the device; everything that is not a tensor stays as it is."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {name: move(item, device) for name, item in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(move(item, device) for item in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(move(item, device) for item in batch)
    return batch


class Trainer:
    """Runs micro-steps and updates on a :class:`Setup`. Keeps no clock: whoever measures marks times around calls."""

    def __init__(self, setup: Setup, *, max_grad_norm: float) -> None:
        assert setup.optimizer is not None, "the optimizer knob has been applied"
        self._setup = setup
        self._optimizer = setup.optimizer
        self._max_grad_norm = max_grad_norm
        self._parameters = [p for group in self._optimizer.param_groups for p in group["params"]]
        self._nominal = 0
        self._units = 0
        self._loss: torch.Tensor | None = None
        self._skips = 0
        self.applied_steps = 0
        setup.model.train()
        self._optimizer.zero_grad(set_to_none=True)

    @contextmanager
    def forward_context(self) -> Iterator[None]:
        """What every forward pass runs in: autocast, an attention backend."""
        with ExitStack() as stack:
            for make in self._setup.forward_contexts:
                stack.enter_context(make())
            yield

    def place(self, batch: Batch) -> Any:
        """The batch on the device, in the configuration's memory format."""
        return convert_batch(move(batch, self._setup.device), self._setup.config)

    def micro_step(self, batch: Batch) -> int:
        """Forward and backward of one placed micro-batch. Returns its real units."""
        with self.forward_context():
            loss, units = self._setup.workload.loss(self._setup.model, batch)
        self._nominal = self._nominal or max(units, 1)
        scaled = loss / self._nominal
        scaler = self._setup.scaler
        torch.autograd.backward(scaled if scaler is None else scaler.scale(scaled))
        self._loss = loss.detach() if self._loss is None else self._loss + loss.detach()
        self._units += units
        return units

    def update(self) -> Update:
        """The optimizer step for the micro-steps since the last one.

        Raises:
            NumericalFault: The scaler skipped ``SKIPS_IN_A_ROW`` updates in a row.
            ValueError: There was no real unit in the global batch.
        """
        if self._units == 0 or self._loss is None:
            raise ValueError("this global batch holds no unit to learn from: every label is padding")
        self._normalise_gradients()
        applied = self._step()
        self._optimizer.zero_grad(set_to_none=True)
        done = Update(applied=applied, units=self._units, loss=self._loss / self._units)
        self._units, self._nominal, self._loss = 0, 0, None
        self._count(applied)
        return done

    def _normalise_gradients(self) -> None:
        if self._setup.scaler is not None:
            self._setup.scaler.unscale_(self._optimizer)
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        if self._units != self._nominal:
            torch._foreach_mul_(gradients, self._nominal / self._units)
        torch.nn.utils.clip_grad_norm_(self._parameters, self._max_grad_norm)

    def _step(self) -> bool:
        scaler = self._setup.scaler
        if scaler is None:
            self._optimizer.step()
            return True
        before = scaler.get_scale()
        scaler.step(self._optimizer)
        scaler.update()
        return (
            scaler.get_scale() >= before
        )  # a skipped update lowers the scale; hooks cannot tell (FusedAdam fires them)

    def _count(self, applied: bool) -> None:
        self.applied_steps += applied
        self._skips = 0 if applied else self._skips + 1
        if self._skips >= SKIPS_IN_A_ROW:
            raise NumericalFault(
                f"{self._skips} updates in a row were skipped: the gradient overflows at every loss scale"
            )

    def drop(self) -> None:
        """Forgets the gradients of micro-steps that get no update."""
        self._optimizer.zero_grad(set_to_none=True)
        self._units, self._nominal, self._loss = 0, 0, None
