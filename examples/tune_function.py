"""A function instead of a spec: find the fastest configuration for the training that it makes.

Run it: ``python examples/tune_function.py`` (about a minute on two CPU cores). The same call works in a notebook. It
stands where ``find_executable_batch_size`` stood, and says at the end what that would have chosen.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

import tuner

WIDTH, LAYERS, SAMPLES = 256, 4, 1024


class Block(nn.Module):
    """Two linear layers with a skip connection; shape (samples, width) in and out."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """The same shape again."""
        return values + self.inside(values)


def make_training() -> tuple[nn.Module, TensorDataset, object]:
    """Model, data and loss, as you have them. Called in a fresh process for each trial."""
    model = nn.Sequential(*(Block() for _ in range(LAYERS)))
    numbers = torch.Generator().manual_seed(0)
    values = torch.randn(SAMPLES, WIDTH, generator=numbers)
    return model, TensorDataset(values, values.roll(1, dims=1)), loss


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """The mean over the samples of the batch."""
    values, wanted = batch
    return nn.functional.mse_loss(model(values).float(), wanted)


if __name__ == "__main__":
    result = tuner.tune(
        make_training,
        global_batch_size=64,
        baseline={"micro_batch_size": 4},
        search={"precision": ["fp32", "bf16-mixed"], "activation_checkpointing": ["none", "full"]},
        limits={"trials": 8, "time": "1m", "window": "1s", "memory": "80%"},
    )
    print(result)  # noqa: T201
    for row in result.front:
        print(row)  # noqa: T201
    result.plot().save("tune_function.svg")
