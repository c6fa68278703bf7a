"""Mistakes 1, 2 and 5, planted: each fault beside its clean twin. What costs time sleeps, so that nobody disturbs it.

All share one linear model on rows of numbers; what differs is where the time goes.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

WIDTH, SAMPLES = 8, 64


class PacedWorkload:
    """The clean twin of them all: two milliseconds a sample, data at once."""

    def __init__(self) -> None:
        self.model: nn.Module = nn.Linear(WIDTH, 1)

    def dataset(self) -> Any:
        return list(range(SAMPLES))

    def collate(self, samples: list[Any]) -> Any:
        return torch.ones(len(samples), WIDTH)

    def compute_seconds(self, batch: Any) -> float:
        return 0.002 * len(batch)

    def loss(self, model: nn.Module, batch: Any) -> tuple[torch.Tensor, int]:
        time.sleep(self.compute_seconds(batch))
        return model(batch).float().square().sum(), len(batch)

    def longest(self, micro_batch_size: int) -> Any:
        return self.collate([0] * micro_batch_size)


class Paced:
    """The objective of a workload; the others name theirs."""

    unit = "samples"
    workload: type[PacedWorkload] = PacedWorkload

    def build(self, device: torch.device, seed: int) -> PacedWorkload:
        torch.manual_seed(seed)
        return self.workload()


# --- mistake 1: the batch


class SlowerAtTheEdgeWorkload(PacedWorkload):
    """Above four samples each one costs more: retries near the limit, caches that no longer hold."""

    def compute_seconds(self, batch: Any) -> float:
        return super().compute_seconds(batch) + 0.001 * max(0, len(batch) - 4) ** 2


class DearMicroBatchesWorkload(PacedWorkload):
    """Each micro-batch costs twenty milliseconds whatever it holds: small ones waste most of it."""

    def compute_seconds(self, batch: Any) -> float:
        return super().compute_seconds(batch) + 0.020


class LargeEvaluationWorkload(PacedWorkload):
    """Keeps the predictions of the whole evaluation on the device, until there is no room."""

    def evaluate(self, model: nn.Module) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 14.00 GiB.")


class SmallEvaluationWorkload(PacedWorkload):
    def evaluate(self, model: nn.Module) -> None:
        with torch.no_grad():
            model(self.longest(2))


class SlowerAtTheEdge(Paced):
    workload = SlowerAtTheEdgeWorkload


class DearMicroBatches(Paced):
    workload = DearMicroBatchesWorkload


class LargeEvaluation(Paced):
    workload = LargeEvaluationWorkload


class SmallEvaluation(Paced):
    workload = SmallEvaluationWorkload


# --- mistake 2: precision and memory format


class FastInBf16Workload(PacedWorkload):
    """Four times as fast under autocast: a device with fast 16-bit units."""

    def compute_seconds(self, batch: Any) -> float:
        return super().compute_seconds(batch) / (4 if torch.is_autocast_enabled("cpu") else 1)


class OverflowingWorkload(PacedWorkload):
    """Activations of 80,000: fp16 ends at 65,504, bf16 has fp32's range."""

    scale = 10_000.0

    def loss(self, model: nn.Module, batch: Any) -> tuple[torch.Tensor, int]:
        time.sleep(self.compute_seconds(batch))
        return model(batch * self.scale).float().abs().sum() / self.scale, len(batch)

    def __init__(self) -> None:
        super().__init__()
        nn.init.ones_(self.model.weight)  # type: ignore[arg-type]


class SmallNumbersWorkload(OverflowingWorkload):
    """The clean twin: the same in a range that fp16 has."""

    scale = 1.0


class PicturesWorkload(PacedWorkload):
    """A convolution whose time does not depend on the layout."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1))

    def collate(self, samples: list[Any]) -> Any:
        return torch.ones(len(samples), 3, 8, 8)


class FastChannelsLastWorkload(PicturesWorkload):
    """Its kernels want the channels last: eight times as fast then."""

    def compute_seconds(self, batch: Any) -> float:
        fast = batch.is_contiguous(memory_format=torch.channels_last)
        return super().compute_seconds(batch) / (8 if fast else 1)


class FastInBf16(Paced):
    workload = FastInBf16Workload


class Overflowing(Paced):
    workload = OverflowingWorkload


class SmallNumbers(Paced):
    workload = SmallNumbersWorkload


class Pictures(Paced):
    workload = PicturesWorkload


class FastChannelsLast(Paced):
    workload = FastChannelsLastWorkload


# --- mistake 5: the data


class SlowCollateWorkload(PacedWorkload):
    """Each micro-batch takes fifteen milliseconds to make, and the model waits for it."""

    def collate(self, samples: list[Any]) -> Any:
        time.sleep(0.015)
        return super().collate(samples)


class Cached:
    """Samples that take five milliseconds the first time they are asked for: a network disk behind a cache."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._seen = seconds, set[int]()

    def __len__(self) -> int:
        return 2 * SAMPLES

    def __getitem__(self, index: int) -> int:
        if self._seconds and index not in self._seen:
            time.sleep(self._seconds)
            self._seen.add(index)
        return index


class SlowFirstPassWorkload(PacedWorkload):
    def dataset(self) -> Any:
        return Cached(0.005)


class EvenPassesWorkload(PacedWorkload):
    def dataset(self) -> Any:
        return Cached(0.0)


class Sentences:
    """Sentences of given lengths, over and over."""

    def __init__(self, lengths: tuple[int, ...]) -> None:
        self._lengths = lengths

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        return self._lengths[index % len(self._lengths)]


class PaddedWorkload(PacedWorkload):
    """Short sentences beside long ones: two thirds of the positions are padding, and are computed all the same."""

    lengths_of_samples: tuple[int, ...] = (4, 4, 4, 64)

    def dataset(self) -> Any:
        return Sentences(self.lengths_of_samples)

    def lengths(self) -> list[int]:
        return [self.dataset()[index] for index in range(SAMPLES)]

    def collate(self, samples: list[int]) -> Any:
        return {"input_ids": torch.zeros(len(samples), max(samples), dtype=torch.long), "units": sum(samples)}

    def loss(self, model: nn.Module, batch: Any) -> tuple[torch.Tensor, int]:
        time.sleep(2e-5 * batch["input_ids"].numel())
        return model(torch.ones(1, WIDTH)).square().sum(), batch["units"]

    def longest(self, micro_batch_size: int) -> Any:
        return self.collate([max(self.lengths_of_samples)] * micro_batch_size)


class EvenLengthsWorkload(PaddedWorkload):
    lengths_of_samples = (60, 62, 64, 61)


class SlowCollate(Paced):
    workload = SlowCollateWorkload


class SlowFirstPass(Paced):
    workload = SlowFirstPassWorkload


class EvenPasses(Paced):
    workload = EvenPassesWorkload


class Padded(Paced):
    unit = "tokens"
    workload = PaddedWorkload


class EvenLengths(Paced):
    unit = "tokens"
    workload = EvenLengthsWorkload
