"""One family of configurations played through with fakes: the training loop's own steps, their peaks noted.

A family shares model, precision, checkpointing, attention, loss and memory format. Its micro-steps are played one size
at a time, its update once an optimizer: what lives through both only adds, so nothing is played twice
(:func:`~objectives.estimate.prediction.worst` puts them together).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from objectives import knobs
from objectives.config import TrainingConfig
from objectives.estimate.fakes import convert, replace_tensors, taken_for_real
from objectives.estimate.known_values import KnownValues
from objectives.estimate.prediction import (
    ACTIVATIONS,
    GRADIENTS,
    OPTIMIZER_STATE,
    PARAMETERS,
    MicroPiece,
    UpdatePiece,
)
from objectives.estimate.storages import StorageCounter, tensors_in
from objectives.trial.setup import Setup
from objectives.trial.trainer import Trainer

if TYPE_CHECKING:
    from objectives.contract import Batch, Objective

META = torch.device("meta")


class Rehearsal:
    """A model of fakes with the knobs of one configuration, and the counter of what lives.

    Args:
        objective: Builds the model, on the meta device.
        config: Names the family; its micro-batch size and optimizer do not matter.
        device: Whose kernels are played.
        seed: Of the study.
        max_grad_norm: For the clip.
    """

    def __init__(
        self, objective: Objective, config: TrainingConfig, device: torch.device, *, seed: int, max_grad_norm: float
    ) -> None:
        self._device = device
        self._max_grad_norm = max_grad_norm
        workload = objective.build(META, seed)
        self.setup = Setup(device=device, workload=workload, config=config.with_values(compile="off"))
        knobs.apply_all(self.setup)
        self._fakes = FakeTensorMode(allow_non_fake_inputs=True)
        self._counter = StorageCounter(device.type)
        self._values = KnownValues(self._fakes)
        self._playing = False
        self._trained: list[torch.nn.Parameter] | None = None
        with self._played():
            for tensor in replace_tensors(self.setup.model, device):
                self._counter.mark(tensor, PARAMETERS)
            self._trainer = self.with_optimizer(config.optimizer)
        self._mark_gradients()

    @contextmanager
    def _played(self) -> Iterator[None]:
        """Inside, every operator is played. Enters once, however deep the calls."""
        if self._playing:
            yield
            return
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # what a real run would say is for the real run
            for context in (taken_for_real(), self._fakes, self._counter, self._values):
                stack.enter_context(context)
            self._playing = True
            try:
                yield
            finally:
                self._playing = False

    def _mark_gradients(self) -> None:
        def mark(parameter: torch.Tensor) -> None:
            if parameter.grad is not None:
                self._counter.mark(parameter.grad, GRADIENTS)

        for parameter in self.setup.model.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(mark)  # type: ignore[no-untyped-call]

    def with_optimizer(self, name: str) -> Trainer:
        """A trainer over the fakes with a fresh optimizer of this name (or the workload's own) and no gradients."""
        with self._played():
            apply: Any = knobs.knob("optimizer").apply
            apply(self.setup, name)
            return Trainer(self.setup, max_grad_norm=self._max_grad_norm)

    def longest(self, micro_batch_size: int) -> tuple[Batch, int]:
        """The worst batch of this size as fakes, and its bytes on the device."""
        assert not self._playing, "a batch's own values must be real"
        batch = self.setup.workload.longest(micro_batch_size)
        with self._played():
            made = convert(batch, self._values.give)
            before = self._counter.live_bytes
            convert(made, lambda tensor: (self._counter.mark(tensor, ACTIVATIONS), tensor)[1])
            return made, self._counter.live_bytes - before

    def micro_piece(self, micro_batch_size: int, *, accumulates: bool) -> MicroPiece:
        """One micro-step, with the gradients of the one before beside it when the configuration accumulates."""
        batch, batch_bytes = self.longest(micro_batch_size)
        with self._played():
            self._trainer.drop()
            if accumulates:
                self._provide_gradients(batch)
            self._counter.restart()
            before = self._values.guesses
            self._step(self._trainer, batch)
            peak, guessed = self._counter.peak, self._values.guesses > before
            self._trainer.drop()
        return MicroPiece(peak=peak, batch_bytes=batch_bytes, guessed=guessed)

    def _step(self, trainer: Trainer, batch: Batch) -> None:
        trainer.micro_step(trainer.place(batch))
        if self._trained is None:
            self._trained = [p for p in self.setup.model.parameters() if p.grad is not None]

    def _provide_gradients(self, batch: Batch) -> None:
        """Gradients as a micro-step leaves them. Which parameters get one is learnt from the first micro-step."""
        if self._trained is None:
            self._step(self._trainer, batch)
            return
        for parameter in self._trained:
            parameter.grad = torch.empty_like(parameter)
            self._counter.mark(parameter.grad, GRADIENTS)

    def update_piece(self, optimizer: str, micro_batch_size: int) -> UpdatePiece:
        """The second of two whole updates with this optimizer; the micro-batch is only what gives it gradients."""
        batch, batch_bytes = self.longest(micro_batch_size)
        with self._played():
            trainer = self.with_optimizer(optimizer)
            for _ in range(2):
                self._step(trainer, batch)
                self._counter.restart()
                trainer.update()
                state_bytes = self._mark_state()
            peak = self._counter.peak.plus(ACTIVATIONS, -batch_bytes)
            assert self.setup.optimizer is not None
            self.setup.optimizer.state.clear()  # whatever still holds the optimizer, its state must not count further
        return UpdatePiece(peak=peak, state_bytes=state_bytes)

    def _mark_state(self) -> int:
        assert self.setup.optimizer is not None
        states = (value for state in self.setup.optimizer.state.values() for value in state.values())
        return sum(self._counter.mark(tensor, OPTIMIZER_STATE) for value in states for tensor in tensors_in(value))
