"""The body of a ``trainer`` run: the exported files in the real trainer, for some steps, timed from outside.

Worst-case batches first, while memory is read (two optimizer steps); then steps on the study's data that are timed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from objectives import knobs
from objectives.config import TrainingConfig
from objectives.contract import load_objective
from objectives.measure.hardware import describe
from objectives.measure.memory import open_memory
from objectives.preload import import_model_code
from objectives.trainers.stopwatch import Stopwatch
from objectives.trial import training_loop
from objectives.trial.setup import Setup

if TYPE_CHECKING:
    import torch

    from objectives.contract import Workload
    from objectives.trial.channel import Channel
    from objectives.trial.protocol import RunRequest

OWN = "tightfit"
"""Asked for in place of a trainer: the study's own loop, measured again now."""
WARM_UP_STEPS = 2
"""Optimizer steps before the timed ones: the second has everything in memory at once (as in our own worst case)."""


@dataclass(kw_only=True)
class Job:
    """Everything a trainer's file needs.

    Attributes:
        values: The exported main file.
        loader: The exported keyword arguments of a ``DataLoader``; empty where the trainer makes it.
        in_code: Knobs that no file holds: what the exported notes do in code is in effect on ``setup`` for these.
        steps: Optimizer steps in all, the warm-up's included.
        samples: Samples per optimizer step.
        folder: For the trainer's own output; removed afterwards.
    """

    values: Mapping[str, Any]
    loader: Mapping[str, Any]
    in_code: frozenset[str]
    setup: Setup
    watch: Stopwatch
    steps: int
    samples: int
    micro_batch_size: int
    learning_rate: float
    seed: int
    folder: Path

    @property
    def workload(self) -> Workload:
        """The study's own."""
        return self.setup.workload

    def dataset(self) -> Any:
        """Whole global batches alone, in the study's order: no optimizer step of an epoch is smaller.

        Raises:
            ValueError: The data is smaller than one global batch.
        """
        from torch.utils.data import Subset

        rows = self.workload.dataset()
        whole = len(rows) // self.samples * self.samples
        if not whole:
            raise ValueError(f"the data has {len(rows)} samples, fewer than one global batch of {self.samples}")
        return Subset(rows, range(whole))

    def loss(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        """The mean over the units of a micro-batch; units are counted on the way."""
        batch = self.watch.batch(batch)
        total, units = self.workload.loss(model, batch)
        self.watch.count(units)
        return total / max(units, 1)


def run(request: RunRequest, channel: Channel) -> None:
    """Answers ``request.answer``: ``{"trainer", "values", "loader", "in_code", "steps"}``.

    Sends one ``answer`` with the stopwatch's figures and the peak; for :data:`OWN` the measurement of our own loop.
    """
    asked = request.answer
    if asked["trainer"] == OWN:
        training_loop.run(request, channel)
        return
    channel.phase("import")
    run_trainer = _imported(asked["trainer"])
    device = training_loop.open_device(request)
    memory = open_memory(device, request.memory_limit_bytes, cap=False)
    memory.warm(request.threads)
    import_model_code(request.objective)
    objective = load_objective(request.objective)
    channel.phase("build")
    memory.start()
    setup, in_code = _setup(request, objective.build(device, request.seed))
    readings: list[Any] = []

    def read_memory() -> None:
        readings.append(memory.reading())
        memory.lift()
        channel.phase("measure")

    watch = Stopwatch(device=device, warm_up_steps=WARM_UP_STEPS, on_warm=read_memory)
    watch.longest = _placed(setup.workload.longest(int(request.config["micro_batch_size"])), device)
    channel.phase("worst_case")
    with tempfile.TemporaryDirectory() as folder, watch:
        job = Job(
            values=asked["values"],
            loader=asked["loader"],
            in_code=in_code,
            setup=setup,
            watch=watch,
            steps=int(asked["steps"]) + WARM_UP_STEPS,
            samples=request.global_batch_size,
            micro_batch_size=int(request.config["micro_batch_size"]),
            learning_rate=request.learning_rate,
            seed=request.seed,
            folder=Path(folder),
        )
        said = run_trainer(job)
    channel.send(
        "answer",
        **watch.figures(),
        peak_memory_bytes=readings[0].peak_memory_bytes if readings else None,
        trainer_says=said,
        unit=objective.unit,
        hardware=describe(device) | {"threads": request.threads},
    )
    channel.phase("done")


def _imported(trainer: str) -> Any:
    """The function that runs a trainer; its library is imported before memory is looked at."""
    if trainer == "hf-trainer":
        from objectives.trainers import hugging_face

        return hugging_face.run
    from objectives.trainers import lightning_fit

    return lightning_fit.run


def _setup(request: RunRequest, workload: Workload) -> tuple[Setup, frozenset[str]]:
    """The model with the knobs that stand in code in effect; those of the files are the trainer's to apply."""
    import torch

    in_code = frozenset(request.answer["in_code"])
    config = TrainingConfig().with_values(**{name: request.config[name] for name in in_code})
    torch.manual_seed(request.seed)
    setup = Setup(
        device=training_loop.open_device(request), workload=workload, config=config,
        learning_rate=request.learning_rate,
    )  # fmt: skip
    for item in knobs.KNOBS:
        if item.apply is not None and item.name in in_code:
            item.apply(setup, getattr(config, item.name))
    if setup.compile_options is not None:
        setup.model.compile(**setup.compile_options)
    return setup, in_code


def _placed(batch: Any, device: torch.device) -> Any:
    """A batch on the device, whatever it is made of."""
    import torch

    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: _placed(part, device) for name, part in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(_placed(part, device) for part in batch)
    return batch
