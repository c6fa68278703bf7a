"""Mistake 6, planted: accumulation that trains something else than the whole batch. Each fault beside its clean twin.

All share one tiny next-token model on sentences of 4 to 33 tokens, so that micro-batches differ in real tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

VOCABULARY, PADDING = 48, -100


class Reader(nn.Module):
    """Embedding, one gated layer, head. Sees one token at a time, so samples and padding cannot touch each other."""

    def __init__(self, width: int = 16, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layer = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(dropout))
        self.head = nn.Linear(2 * width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.embedding(tokens)))


class Sentences:
    """Forty sentences, long and short ones in turn."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> list[int]:
        generator = torch.Generator().manual_seed(index)
        length = 4 + (index * 7) % 30
        return torch.randint(1, VOCABULARY, (length,), generator=generator).tolist()


class RightWorkload:
    """The clean twin of them all: the SUM of the loss over real tokens, and their number."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def dataset(self) -> Sentences:
        return Sentences()

    def lengths(self) -> list[int]:
        return [len(Sentences()[index]) - 1 for index in range(40)]

    def collate(self, samples: list[list[int]]) -> dict[str, Any]:
        width = max(map(len, samples))
        tokens = torch.zeros(len(samples), width, dtype=torch.long)
        targets = torch.full((len(samples), width), PADDING)
        for row, sample in enumerate(samples):
            tokens[row, : len(sample)] = torch.tensor(sample)
            targets[row, : len(sample) - 1] = torch.tensor(sample[1:])
        return {"tokens": tokens, "targets": targets, "units": int((targets != PADDING).sum())}

    def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
        return self.cross_entropy(model, batch, "sum"), batch["units"]

    def cross_entropy(self, model: nn.Module, batch: Mapping[str, Any], reduction: str) -> torch.Tensor:
        output = model(batch["tokens"]).flatten(0, 1).float()
        return nn.functional.cross_entropy(
            output, batch["targets"].flatten(), ignore_index=PADDING, reduction=reduction
        )

    def longest(self, micro_batch_size: int) -> dict[str, Any]:
        return self.collate([[1] * 33] * micro_batch_size)


class Right:
    """``planted_accumulation:Right``: trains the same however the batch is split."""

    unit = "tokens"
    workload: type[RightWorkload] = RightWorkload
    dropout = 0.0

    def build(self, device: torch.device, seed: int) -> RightWorkload:
        torch.manual_seed(seed)
        return self.workload(self.model().to(device))

    def model(self) -> nn.Module:
        return Reader(dropout=self.dropout)


class MeanTimesSamplesWorkload(RightWorkload):
    def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
        samples = len(batch["tokens"])
        return self.cross_entropy(model, batch, "mean") * samples, samples


class MeanTimesSamples(Right):
    """FAULT: averages each micro-batch over its own tokens, then weighs it by its samples."""

    workload = MeanTimesSamplesWorkload


class MeanPerMicroBatchWorkload(RightWorkload):
    def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
        return self.cross_entropy(model, batch, "mean"), 1


class MeanPerMicroBatch(Right):
    """FAULT: what a loop does with a model that returns its mean loss: the mean of the means."""

    workload = MeanPerMicroBatchWorkload


class PaddingCountedWorkload(RightWorkload):
    def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
        return self.cross_entropy(model, batch, "sum"), batch["tokens"].numel()


class PaddingCounted(Right):
    """FAULT: the sum is right, the number it is divided by counts padding."""

    workload = PaddingCountedWorkload


class EmptiedWorkload(RightWorkload):
    def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
        model.zero_grad()
        return super().loss(model, batch)


class Emptied(Right):
    """FAULT: empties the gradients at every micro-batch, so that only the last one of a window is learnt from."""

    workload = EmptiedWorkload


class ScheduledWorkload(RightWorkload):
    """Steps its own learning-rate schedule; ``every`` micro-batch or every second one (the accumulation)."""

    every = 1

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self._calls = 0

    def optimizer(self, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        made = torch.optim.AdamW(parameters, lr=1e-3)
        self._schedule = torch.optim.lr_scheduler.LinearLR(made, start_factor=1.0, end_factor=0.1, total_iters=1000)
        return made

    def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
        self._calls += 1
        if self._calls % self.every == 0 and self._calls > 1:
            self._schedule.optimizer._opt_called = True  # type: ignore[attr-defined]
            self._schedule.step()
        return super().loss(model, batch)


class ScheduledByMicroBatch(Right):
    """FAULT: its schedule goes on once a micro-batch, so it ends after a fraction of the run."""

    workload = ScheduledWorkload


class EverySecondWorkload(ScheduledWorkload):
    every = 2


class ScheduledByUpdate(Right):
    """The clean twin with accumulation 2: its schedule goes on once an update."""

    workload = EverySecondWorkload


class WithDropout(Right):
    """Clean: dropout alone makes two splits differ, and it is off when gradients are compared."""

    dropout = 0.3


class SamplesWorkload(RightWorkload):
    """Clean: a mean over samples that are all alike in size, times their number."""

    def collate(self, samples: list[list[int]]) -> dict[str, Any]:
        return super().collate([(sample * 6)[:24] for sample in samples])

    def lengths(self) -> list[int]:
        return [23] * 40

    def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
        samples = len(batch["tokens"])
        return self.cross_entropy(model, batch, "mean") * samples, samples


class EqualSamples(Right):
    """The clean twin of :class:`MeanTimesSamples`: with rows of one length the mean of means is the mean."""

    workload = SamplesWorkload


class Unused(Right):
    """FAULT beside the gradient: a layer that no loss reaches."""

    def model(self) -> nn.Module:
        made = super().model()
        made.forgotten = nn.Linear(4, 4)
        return made


class NormedWorkload(RightWorkload):
    def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
        return super().loss(model, batch)


class Normed(Right):
    """Not comparable: batch norm computes with each micro-batch's own statistics."""

    def model(self) -> nn.Module:
        made = super().model()
        made.layer.append(PerFeatureNorm(32))
        return made


class PerFeatureNorm(nn.Module):
    """Batch norm over every position of the micro-batch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.norm(hidden.flatten(0, 1)).view_as(hidden)


class ContrastiveWorkload(RightWorkload):
    def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
        made = nn.functional.normalize(model(batch["tokens"]).mean(1), dim=-1)
        scores = made @ made.t() * 5
        return nn.functional.cross_entropy(scores, torch.arange(len(made)), reduction="sum"), len(made)


class Contrastive(Right):
    """Not comparable: each sample is told from the others of its micro-batch."""

    workload = ContrastiveWorkload


class AuxiliaryWorkload(RightWorkload):
    def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
        total, units = super().loss(model, batch)
        load = model(batch["tokens"]).softmax(-1).mean((0, 1))
        return total + 0.01 * units * (load * load).sum() * VOCABULARY, units


class Auxiliary(Right):
    """Not comparable: a balancing loss of the whole micro-batch, as mixtures of experts have it."""

    workload = AuxiliaryWorkload


class Noisy(Right):
    """Not comparable: draws random numbers that no module names."""

    class workload(RightWorkload):
        def loss(self, model: nn.Module, batch: Mapping[str, Any]) -> tuple[torch.Tensor, int]:
            total, units = super().loss(model, batch)
            return total * (1 + 0.1 * torch.rand(())), units
