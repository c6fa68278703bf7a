"""What a child has built so far: knobs apply to it and are read back from it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from objectives.config import TrainingConfig
from objectives.contract import Workload

if TYPE_CHECKING:
    import torch
    from torch.utils.data import DataLoader


@dataclass(kw_only=True)
class Setup:
    """The parts of one training run. Knobs are applied in the order of ``KNOBS``, then the loader is made.

    Attributes:
        device: Where the model is.
        workload: The user's or a built-in's; ``workload.model`` is the model itself.
        config: What was asked for.
        learning_rate: For the optimizer knob.
        forward_contexts: Makes the contexts every forward pass runs in (autocast, an attention backend), outermost
            first.
        compile_options: Keyword arguments of ``torch.nn.Module.compile``; None leaves the model eager. The training
            loop compiles after every other knob has been applied.
        scaler: The gradient scaler of ``fp16-mixed``; None otherwise.
        optimizer: Made by the ``optimizer`` knob (or the workload's own).
        loader_options: Keyword arguments of the ``DataLoader``, collected from the loader's knobs.
        loader: Made by the training loop from ``loader_options``.
    """

    device: torch.device
    workload: Workload
    config: TrainingConfig
    learning_rate: float = 1e-4
    forward_contexts: list[Callable[[], AbstractContextManager[Any]]] = field(default_factory=lambda: [nullcontext])
    compile_options: dict[str, Any] | None = None
    scaler: torch.amp.GradScaler | None = None
    optimizer: torch.optim.Optimizer | None = None
    loader_options: dict[str, Any] = field(default_factory=dict)
    loader: DataLoader[Any] | None = None

    @property
    def model(self) -> torch.nn.Module:
        """The workload's model."""
        return self.workload.model
