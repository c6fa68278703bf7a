"""The real Lightning ``Trainer`` on a study's workload, with the exported keyword arguments."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import lightning
import torch
from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from objectives.trainers.job import Job


def run(job: Job) -> dict[str, Any]:
    """Trains; returns what Lightning itself says at its end."""
    warnings.filterwarnings("ignore", module="lightning")
    trainer = lightning.Trainer(
        **job.values,
        max_steps=job.steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=str(job.folder),
    )
    loader = _Watched(job.dataset(), collate_fn=job.workload.collate, **job.loader)
    loader.watch = job.watch
    trainer.fit(_Module(job), train_dataloaders=loader)
    return {"global_step": int(trainer.global_step)}


class _Watched(DataLoader):  # type: ignore[type-arg]
    """A loader whose consumer's waits are timed."""

    watch: Any = None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """The same batches."""
        return iter(super().__iter__()) if self.watch is None else self.watch.batches(_Inner(super().__iter__))


class _Inner:
    """Something to iterate over from a function that makes the iterator."""

    def __init__(self, make: Any) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        return iter(self._make())


class _Module(lightning.LightningModule):
    """The workload as Lightning wants it."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.inner, self._job = job.setup.model, job

    def training_step(self, batch: Any, _index: int) -> torch.Tensor:
        """The loss of a micro-batch; Lightning divides it by the accumulation steps."""
        with self._job.watch.part("compute"):
            return self._job.loss(self.inner, batch)

    def backward(self, loss: torch.Tensor, *_arguments: Any, **_more: Any) -> None:
        """The backward pass."""
        with self._job.watch.part("compute"):
            loss.backward()  # type: ignore[no-untyped-call]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The exported optimizer, which is code."""
        made = self._job.setup.optimizer
        return made if made is not None else torch.optim.AdamW(self.inner.parameters(), lr=self._job.learning_rate)
