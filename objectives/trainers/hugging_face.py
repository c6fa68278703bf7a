"""The real Hugging Face ``Trainer`` on a study's workload, with the exported arguments read by its own parser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import accelerate  # noqa: F401 - what the Trainer imports late belongs to no configuration's memory
from transformers import HfArgumentParser, Trainer, TrainingArguments

if TYPE_CHECKING:
    from objectives.trainers.job import Job


def run(job: Job) -> dict[str, Any]:
    """Trains; returns what the Trainer itself says at its end."""
    arguments = _arguments(job)
    collate = job.workload.collate
    trainer = _Watched(
        job,
        model=job.setup.model,
        args=arguments,
        train_dataset=job.dataset(),
        data_collator=lambda samples: {"batch": collate(samples)},
        optimizers=(job.setup.optimizer if "optimizer" in job.in_code else None, None),
    )
    ended = trainer.train()
    return {name: value for name, value in ended.metrics.items() if isinstance(value, (int, float))}


def _arguments(job: Job) -> TrainingArguments:
    """The exported arguments with what the notes leave to the job: folder, steps, rate; and nothing beside training."""
    ours = {
        "output_dir": str(job.folder), "max_steps": job.steps, "learning_rate": job.learning_rate, "seed": job.seed,
        "lr_scheduler_type": "constant", "save_strategy": "no", "logging_strategy": "no", "eval_strategy": "no",
        "report_to": "none", "disable_tqdm": True, "remove_unused_columns": False,
    }  # fmt: skip
    (made,) = HfArgumentParser(TrainingArguments).parse_dict({**job.values, **ours})
    arguments: TrainingArguments = made
    return arguments


class _Watched(Trainer):  # type: ignore[misc]
    """The Trainer as it is; its loss is the workload's, and three of its own methods are timed."""

    def __init__(self, job: Job, **arguments: Any) -> None:
        self._job = job
        super().__init__(**arguments)
        self.model_accepts_loss_kwargs = False  # a mean per micro-batch, divided by the accumulation steps

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_more: Any) -> Any:
        """The workload's loss on the model as the Trainer has wrapped it."""
        loss = self._job.loss(model, inputs["batch"])
        return (loss, None) if return_outputs else loss

    def training_step(self, *arguments: Any, **more: Any) -> Any:
        """Forward and backward."""
        with self._job.watch.part("compute"):
            return super().training_step(*arguments, **more)

    def get_batch_samples(self, epoch_iterator: Iterator[Any], *arguments: Any, **more: Any) -> Any:
        """The wait for an optimizer step's batches."""
        with self._job.watch.part("data"):
            return super().get_batch_samples(epoch_iterator, *arguments, **more)
