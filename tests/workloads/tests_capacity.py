"""A model of known memory and speed, really allocated and really waited for: what a study can be checked against.

Memory grows by ``mib_per_sample`` a sample of the micro-batch, a step takes a floor and a slope. ``faults`` name what
goes wrong where: ``{"precision=bf16-mixed": "crash"}``; ``slow`` says how many times longer a step takes there.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

MIB = 2**20


class CapacityWorkload:
    """Samples are numbers; the loss holds its memory until it is freed with the graph."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.model = nn.Linear(8, 1)
        self._mib = float(settings.get("mib_per_sample", 0.25))
        self._floor = float(settings.get("floor_seconds", 0.03))
        self._slope = float(settings.get("slope_seconds", 0.001))
        self._faults: Mapping[str, str] = settings.get("faults", {})
        self._late = settings.get("late")
        self._slow: Mapping[str, float] = settings.get("slow", {})
        self._chosen: dict[str, str] = {}
        self._calls = 0
        self._optimizer: torch.optim.Optimizer | None = None

    def dataset(self) -> list[int]:
        return list(range(256))

    def collate(self, samples: list[int]) -> torch.Tensor:
        if self._faults.get("collate") == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.ones(len(samples), 8)

    def set_loss(self, name: str) -> None:
        self._chosen["loss"] = name

    def in_effect(self) -> dict[str, str]:
        return dict(self._chosen)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> tuple[torch.Tensor, int]:
        self._calls += 1
        self._fail(len(batch), torch.is_autocast_enabled("cpu"))
        held = torch.ones(int(len(batch) * self._mib * MIB / 4))
        held[::1024] += 1.0
        factor = self._slow.get("mixed", 1.0) if torch.is_autocast_enabled("cpu") else 1.0
        time.sleep(factor * (self._floor + self._slope * len(batch)))
        return model(batch).square().sum() + 0.0 * held[0], len(batch)

    def longest(self, micro_batch_size: int) -> torch.Tensor:
        return torch.ones(micro_batch_size, 8)

    def _fail(self, samples: int, mixed: bool) -> None:
        names = ["always", "mixed" if mixed else "exact", f"samples={samples}", self._chosen.get("loss", "full")]
        for name in names:
            if name in self._faults:
                happen(self._faults[name], self._calls)


def happen(fault: str, calls: int) -> None:
    """The fault. ``late:N`` waits for the N-th micro-step."""
    kind, _, number = fault.partition(":")
    if number and calls < int(number):
        return
    if kind == "crash":
        raise RuntimeError(f"the kernel of call {calls} is broken")
    if kind == "assert":
        raise RuntimeError("CUDA error: device-side assert triggered")
    if kind == "oom":
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 8.00 GiB"
        )
    if kind == "nan":
        raise ArithmeticError("loss is nan")
    if kind == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "hang":
        time.sleep(3600)


class Capacity:
    """The objective. ``prepare`` and ``build`` can fail, too."""

    unit = "samples"

    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    def build(self, device: torch.device, seed: int) -> CapacityWorkload:
        return CapacityWorkload(self._settings)
