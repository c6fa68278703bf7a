"""A tiny model whose steps take a known time: sleeping is the one work whose seconds nobody disturbs."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

MICRO_SECONDS = 0.010
UPDATE_SECONDS = 0.030


class SleepyOptimizer(torch.optim.SGD):
    """SGD whose step takes ``UPDATE_SECONDS`` more."""

    def step(self, closure: Any = None) -> Any:
        time.sleep(UPDATE_SECONDS)
        return super().step(closure)


class PacedWorkload:
    """Samples are numbers; ``lost_batches`` of the first losses are infinite."""

    def __init__(self, *, samples: int = 64, load_seconds: float = 0.0) -> None:
        self.model = nn.Linear(4, 1)
        self._samples, self._load_seconds = samples, load_seconds

    def dataset(self) -> list[int]:
        return list(range(self._samples))

    def collate(self, samples: list[int]) -> torch.Tensor:
        time.sleep(self._load_seconds)
        return torch.ones(len(samples), 4)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> tuple[torch.Tensor, int]:
        time.sleep(MICRO_SECONDS)
        return model(batch).square().sum(), len(batch)

    def longest(self, micro_batch_size: int) -> torch.Tensor:
        return torch.ones(micro_batch_size, 4)

    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        return SleepyOptimizer(parameters, lr=1e-3)


class Paced:
    """The objective."""

    unit = "samples"

    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    def build(self, device: torch.device, seed: int) -> PacedWorkload:
        return PacedWorkload(**self._settings)
