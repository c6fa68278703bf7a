"""A user's own objective: a small recurrent network that forecasts the next value of a noisy wave.

Everything Tightfit needs to know about a model of your own is in two small classes. Run it::

    tuner run examples/own_objective/forecaster.yaml

The spec names the first class as ``kind: "forecaster:Forecaster"``; the module is looked for in the spec's own folder.
What stands under ``objective.settings`` arrives as keyword arguments of that class.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Forecaster:
    """The objective. Cheap to construct: files, model and data come later."""

    unit = "samples"

    def __init__(self, *, width: int = 256, layers: int = 3, history: int = 64, series: int = 4096) -> None:
        self.width, self.layers, self.history, self.series = width, layers, history, series

    def build(self, device: torch.device, seed: int) -> ForecasterWorkload:
        """The model on the device, its weights from the seed. No data is touched and no optimizer made."""
        torch.manual_seed(seed)
        with torch.device(device):
            model = Network(self.width, self.layers)
        return ForecasterWorkload(model, history=self.history, series=self.series)


class Network(nn.Module):
    """Reads a history, shape (samples, steps, 1), and says the next value, shape (samples, 1)."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.enter = nn.Linear(1, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.leave = nn.Linear(width, 1)

    def forward(self, history: torch.Tensor) -> torch.Tensor:
        """The forecast."""
        hidden = self.enter(history)
        for block in self.blocks:
            hidden = block(hidden)
        return self.leave(hidden[:, -1])


class Block(nn.Module):
    """A recurrent layer with a skip connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.recurrent = nn.GRU(width, width, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The same shape again."""
        return self.norm(hidden + self.recurrent(hidden)[0])


class ForecasterWorkload:
    """The model with its data. Required: ``model``, ``dataset``, ``collate``, ``loss``, ``longest``."""

    def __init__(self, model: Network, *, history: int, series: int) -> None:
        self.model = model
        self.history, self.series = history, series

    def dataset(self) -> Waves:
        """Sample ``i`` must be the same in every run of a study: trials are compared on the same samples."""
        return Waves(self.history, self.series)

    def collate(self, samples: list[tuple[np.ndarray, float]]) -> dict[str, torch.Tensor]:
        """Makes one micro-batch; runs in the loader's workers."""
        history = torch.from_numpy(np.stack([values for values, _ in samples]))[..., None]
        return {"history": history, "next": torch.tensor([[value] for _, value in samples])}

    def loss(self, model: nn.Module, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, int]:
        """The SUM over samples and their number: Tightfit divides by the whole global batch, however it was split."""
        forecast = model(batch["history"])
        return functional.mse_loss(forecast.float(), batch["next"].float(), reduction="sum"), len(forecast)

    def longest(self, micro_batch_size: int) -> dict[str, torch.Tensor]:
        """The worst case for memory; here all batches are alike."""
        return {"history": torch.zeros(micro_batch_size, self.history, 1), "next": torch.zeros(micro_batch_size, 1)}

    # From here on everything is optional; without a method its knob is not searched.

    def checkpoint_blocks(self) -> list[nn.Module]:
        """What ``activation_checkpointing`` recomputes in the backward pass."""
        return list(self.model.blocks)


class Waves:
    """Noisy sine waves, made when asked for: ``(history, next value)``."""

    def __init__(self, history: int, series: int) -> None:
        self._history, self._series = history, series

    def __len__(self) -> int:
        return self._series

    def __getitem__(self, row: int) -> tuple[np.ndarray, float]:
        numbers: Any = np.random.default_rng(row)
        period, start = numbers.uniform(8, 32), numbers.uniform(0, 6)
        steps = np.arange(self._history + 1)
        wave = np.sin(start + 2 * np.pi * steps / period) + 0.1 * numbers.standard_normal(len(steps))
        return wave[:-1].astype(np.float32), float(wave[-1])
