"""Memory at the peak of a training step, by category and by module, from the real tensors' storages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from objectives.estimate.prediction import ACTIVATIONS, GRADIENTS, OPTIMIZER_STATE, PARAMETERS
from objectives.estimate.storages import StorageCounter, tensors_in

if TYPE_CHECKING:
    from objectives.contract import Batch
    from objectives.trial.setup import Setup
    from objectives.trial.trainer import Trainer

NO_MODULE = "(none)"
"""Made outside any module's forward: in the loss, the backward pass, the optimizer."""


class ModuleCounter(StorageCounter):  # type: ignore[no-untyped-call]
    """Also keeps which module made each storage that lives.

    Args:
        device_type: Only storages on this kind of device count.
        module: Says which module runs now; empty outside any.
    """

    def __init__(self, device_type: str, module: Callable[[], str]) -> None:
        super().__init__(device_type)
        self._module = module
        self._owners: dict[int, str] = {}
        self._by_module: dict[str, int] = {}
        self.modules_at_peak: dict[str, int] = {}

    def _meet(self, tensor: torch.Tensor, category: str) -> None:
        key, known = tensor.untyped_storage()._cdata, len(self._known)
        super()._meet(tensor, category)
        if len(self._known) > known:
            self.own(key, self._module() or NO_MODULE)

    def own(self, key: int, module: str) -> None:
        """Says whose a storage is."""
        if key not in self._known:
            return
        size, _ = self._known[key]
        if key in self._owners:
            self._by_module[self._owners[key]] -= size
        self._owners[key] = module
        self._by_module[module] = self._by_module.get(module, 0) + size

    def _free(self, key: int) -> None:
        size, _ = self._known[key]
        super()._free(key)
        if (owner := self._owners.pop(key, None)) is not None:
            self._by_module[owner] -= size

    def _note(self, operator: str) -> None:
        before = self._peak
        super()._note(operator)
        if self._peak is not before:
            self.modules_at_peak = dict(self._by_module)


def peak_of_step(setup: Setup, trainer: Trainer, batch: Batch, counter: ModuleCounter) -> dict[str, Any]:
    """Two micro-steps of a batch and an update with the optimizer's state there, and what lived at the largest moment.

    Args:
        setup: With a model that has been updated before, so that the state exists.
        trainer: Of the setup.
        batch: The longest one, on the host.
        counter: Not entered yet.

    Returns:
        ``memory_by_category`` and ``memory_by_module`` in bytes, and ``operator_at_peak``.
    """
    model = setup.model
    for name, module in model.named_modules():
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            counter.mark(tensor, PARAMETERS)
            counter.own(tensor.untyped_storage()._cdata, name or type(model).__name__)
    _mark_state(setup, counter)
    owners = {id(p): name.rpartition(".")[0] or type(model).__name__ for name, p in model.named_parameters()}
    handles = [
        p.register_post_accumulate_grad_hook(_marker(counter, owners))  # type: ignore[no-untyped-call]
        for p in model.parameters()
        if p.requires_grad
    ]
    try:
        with counter:
            for _ in range(min(2, setup.config.accumulation_steps)):
                placed = trainer.place(batch)
                for tensor in tensors_in(list(placed.values()) if isinstance(placed, dict) else placed):
                    counter.mark(tensor, ACTIVATIONS)
                trainer.micro_step(placed)
            trainer.update()
    finally:
        for handle in handles:
            handle.remove()
    return {
        "memory_by_category": {name: size for name, size in counter.peak.categories.items() if size},
        "memory_by_module": _largest(counter.modules_at_peak),
        "operator_at_peak": counter.peak.operator,
    }


def _marker(counter: ModuleCounter, owners: dict[int, str]) -> Callable[[torch.Tensor], None]:
    def mark(parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            counter.mark(parameter.grad, GRADIENTS)
            counter.own(parameter.grad.untyped_storage()._cdata, owners[id(parameter)])

    return mark


def _mark_state(setup: Setup, counter: ModuleCounter) -> None:
    assert setup.optimizer is not None
    owners = {id(p): name.rpartition(".")[0] for name, p in setup.model.named_parameters()}
    for parameter, state in setup.optimizer.state.items():
        for value in state.values():
            for tensor in tensors_in(value):
                counter.mark(tensor, OPTIMIZER_STATE)
                counter.own(tensor.untyped_storage()._cdata, owners.get(id(parameter)) or NO_MODULE)


MOST_MODULES = 40


def _largest(by_module: dict[str, int]) -> dict[str, int]:
    """The largest modules; the others together."""
    ranked = sorted(((size, name) for name, size in by_module.items() if size > 0), reverse=True)
    kept = {name: size for size, name in ranked[:MOST_MODULES]}
    rest = sum(size for size, _ in ranked[MOST_MODULES:])
    return {**kept, "(others)": rest} if rest else kept
