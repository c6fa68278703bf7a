"""An objective that trains for real until it fails as its settings say."""

from __future__ import annotations

import builtins
import importlib
import os
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

STEPS_BEFORE = 3
"""Losses computed before the one that fails: by then one optimizer step at least has been applied."""


def find_class(name: str) -> type[BaseException]:
    """The class of that name, or a stand-in where nothing installed has it."""
    module, _, short = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module) if module else builtins, short, None)
    except ImportError:
        found = None
    return found or type(short, (RuntimeError,), {"__module__": module or "builtins"})


def make(cls: type[BaseException], text: str) -> BaseException:
    """An exception of the class with that text, whatever else its constructor wants."""
    try:
        return cls(text) if text else cls()
    except TypeError:
        error = cls.__new__(cls)
        error.args = (text,)
        return error


def raise_chain(chain: Sequence[Sequence[str]]) -> None:
    """Raises the first exception of the chain, caused by the second, and so on."""
    (name, text), *causes = chain
    error = make(find_class(name), text)
    if not causes:
        raise error
    try:
        raise_chain(causes)
    except BaseException as cause:
        raise error from cause


class Faulty:
    """Fails ``at`` import, build, loss or in a loader worker, by ``how``: raise, signal, exit, ..."""

    unit = "samples"

    def __init__(
        self,
        at: str = "loss",
        how: str = "raise",
        chain: Sequence[Sequence[str]] = (),
        log: str = "",
        number: int = 0,
        after: int = STEPS_BEFORE,
    ) -> None:
        self.at, self.how, self.chain, self.log, self.number, self.after = at, how, chain, log, number, after
        self.reach("import")

    def reach(self, place: str) -> None:
        if place == self.at:
            getattr(self, f"_{self.how}")()

    def build(self, device: torch.device, seed: int) -> FaultyWorkload:
        self.reach("build")
        return FaultyWorkload(self, device)

    def _raise(self) -> None:
        if self.log:
            warnings.warn(self.log, stacklevel=1)
        raise_chain(self.chain)

    def _signal(self) -> None:
        sys.stderr.write(self.log)
        sys.stderr.flush()
        os.kill(os.getpid(), self.number)
        time.sleep(10)

    def _exit(self) -> None:
        sys.stderr.write(self.log)
        sys.stderr.flush()
        os._exit(self.number)

    def _allocate(self) -> None:
        kept = []
        while True:
            kept.append(torch.ones(self.number, dtype=torch.uint8))

    def _compile(self) -> None:
        """A compiler backend that runs out of memory, as inductor's autotuning does."""

        def backend(_graph: Any, _inputs: Any) -> Any:
            raise_chain(self.chain)

        torch.compile(lambda x: x + 1, backend=backend)(torch.zeros(1))

    def _hang(self) -> None:
        time.sleep(600)

    def _nothing(self) -> None:
        pass


class Rows:
    """Sixteen random rows; in a loader worker, the fault of place ``worker``."""

    def __init__(self, faulty: Faulty) -> None:
        self._faulty = faulty

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        if torch.utils.data.get_worker_info() is not None:
            self._faulty.reach("worker")
        return torch.randn(8, generator=torch.Generator().manual_seed(index))


class FaultyWorkload:
    """Least squares."""

    def __init__(self, faulty: Faulty, device: torch.device) -> None:
        self.model = nn.Linear(8, 1).to(device)
        self._faulty = faulty
        self._losses = 0

    def dataset(self) -> Rows:
        return Rows(self._faulty)

    def collate(self, samples: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(samples)

    def loss(self, model: nn.Module, batch: torch.Tensor) -> tuple[Any, int]:
        self._losses += 1
        if self._losses > self._faulty.after:
            self._faulty.reach("loss")
        return model(batch).square().sum(), len(batch)

    def longest(self, micro_batch_size: int) -> torch.Tensor:
        return torch.randn(micro_batch_size, 8)
