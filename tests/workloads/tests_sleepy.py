"""A model that sleeps instead of computing: what a service's own cost, and its recovery, are tested with.

One step takes ``seconds`` whatever the configuration, and next to no memory; larger micro-batches sleep less often.
"""

from __future__ import annotations

import time

import torch
from torch import nn


class SleepyWorkload:
    """Samples are numbers."""

    def __init__(self, seconds: float) -> None:
        self.model = nn.Linear(4, 1)
        self._seconds = seconds

    def dataset(self) -> list[int]:
        return list(range(64))

    def collate(self, samples: list[int]) -> torch.Tensor:
        return torch.ones(len(samples), 4)

    def set_loss(self, name: str) -> None:
        """Any is as good as another: a knob to make the space as large as a test needs it."""

    def loss(self, model: nn.Module, batch: torch.Tensor) -> tuple[torch.Tensor, int]:
        if not isinstance(batch, torch._subclasses.FakeTensor):
            time.sleep(self._seconds)
        return model(batch).square().sum(), len(batch)

    def longest(self, micro_batch_size: int) -> torch.Tensor:
        return torch.ones(micro_batch_size, 4)


class Sleepy:
    """The objective."""

    unit = "samples"

    def __init__(self, seconds: float = 0.02) -> None:
        self._seconds = seconds

    def build(self, device: torch.device, seed: int) -> SleepyWorkload:
        return SleepyWorkload(self._seconds)
