"""Mistake 3, planted: memory that grows over a long run. Each fault beside its clean twin.

All share the tiny next-token model of :mod:`planted_accumulation`; what grows is added to it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

import torch
from planted_accumulation import Right, RightWorkload
from torch import nn

KIB = 1024


class KeepsLosses(Right):
    """FAULT: keeps each loss tensor, and with it the graph of its step."""

    class workload(RightWorkload):
        def __init__(self, model: nn.Module) -> None:
            super().__init__(model)
            self.losses: list[torch.Tensor] = []

        def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
            total, units = super().loss(model, batch)
            kept = model(batch["tokens"]).sum()
            self.losses.append(kept if torch.is_grad_enabled() else kept.detach())
            return total, units


class KeepsNumbers(Right):
    """The clean twin: keeps each loss as a number."""

    class workload(RightWorkload):
        def __init__(self, model: nn.Module) -> None:
            super().__init__(model)
            self.losses: list[float] = []

        def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
            total, units = super().loss(model, batch)
            self.losses.append(float(total.detach()))
            return total, units


class KeepsBatches(Right):
    """FAULT: logs every batch's output without leaving it behind."""

    class workload(RightWorkload):
        def __init__(self, model: nn.Module) -> None:
            super().__init__(model)
            self.log: dict[int, torch.Tensor] = {}

        def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
            self.log[len(self.log)] = torch.ones(16 * KIB)
            return super().loss(model, batch)


class KeepsLast(Right):
    """The clean twin: only the last hundred stay. It grows, and comes to rest."""

    class workload(RightWorkload):
        def __init__(self, model: nn.Module) -> None:
            super().__init__(model)
            self.log: list[torch.Tensor] = []

        def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
            self.log = [*self.log[-99:], torch.ones(16 * KIB)]
            return super().loss(model, batch)


class GrowsInSteps(Right):
    """FAULT: takes a larger buffer now and then, as an allocator takes segments for batches longer than ever before."""

    class workload(RightWorkload):
        def __init__(self, model: nn.Module) -> None:
            super().__init__(model)
            self._taken_at, self._buffers = time.monotonic(), [torch.ones(1)]

        def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
            if time.monotonic() - self._taken_at > 2.2:
                self._taken_at = time.monotonic()
                self._buffers.append(torch.ones(6 * KIB * KIB))
            return super().loss(model, batch)


class Holes(Right):
    """FAULT of an allocator, not of the program: small blocks that stay between large ones that go."""

    class workload(RightWorkload):
        def __init__(self, model: nn.Module) -> None:
            super().__init__(model)
            self._small: list[torch.Tensor] = []

        def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
            if len(self._small) < 4000:
                large = [torch.ones(8 * KIB) for _ in range(8)]
                self._small += [torch.ones(64) for _ in range(8)]
                del large
            return super().loss(model, batch)


class Fills(Right):
    """A cache that fills ever more slowly: saturating growth, as of compiled shapes or a tokenizer's memory."""

    class workload(RightWorkload):
        def __init__(self, model: nn.Module) -> None:
            super().__init__(model)
            self._cache: dict[int, torch.Tensor] = {}
            self._chance = random.Random(0)

        def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
            place = self._chance.randrange(2000)
            if place not in self._cache:
                self._cache[place] = torch.ones(10 * KIB)
            return super().loss(model, batch)
