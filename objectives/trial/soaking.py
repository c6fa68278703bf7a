"""The body of a ``soak`` run: the configuration as training would run it, for minutes, with its memory read all along.

Real batches in the data's order, so that lengths vary as they do; now and then an evaluation break. Beside the plain
run, remedies can be tried: giving cached memory back every so many updates, a small threshold for the C library.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from objectives import knobs
from objectives.contract import load_objective
from objectives.measure.hardware import describe
from objectives.measure.held import Held, held_by_process, held_on_device, trim_heap
from objectives.measure.memory import open_memory
from objectives.measure.memory_cpu import use_small_threshold
from objectives.trial.batches import make_loader
from objectives.trial.kept_tensors import keeper_of_new, tensor_ids
from objectives.trial.trainer import Trainer
from objectives.trial.training_loop import build, failure_facts, open_device
from objectives.trial.worst_case import check_finite

if TYPE_CHECKING:
    from objectives.trial.channel import Channel
    from objectives.trial.protocol import RunRequest
    from objectives.trial.setup import Setup

READINGS = 360
"""Readings of memory over the run."""
BREAKS = 8
"""Evaluation breaks over the run."""
WARM_UPDATES = 3
LOOKS_AT_BLOCKS = 10
"""The largest free block is looked for at every so-many-th reading: it walks over all segments."""


def run(request: RunRequest, channel: Channel) -> None:
    """Answers ``request.answer``: ``{"seconds": s, "empty_cache_every": n | null, "small_threshold": bool}``.

    Sends ``step`` events now and then, and one ``measurement``: ``series`` (readings with ``seconds`` since the start),
    ``updates``, ``units_per_second`` (evaluation breaks left out), ``evaluations``, ``tensors`` (counts at start and
    end), ``kept`` (what keeps the new ones), ``peak_memory_bytes``.
    """
    channel.phase("import")
    device = open_device(request)
    memory = open_memory(device, request.memory_limit_bytes, cap=request.cap_memory and device.type == "cuda")
    memory.warm(request.threads)
    objective = load_objective(request.objective)
    channel.phase("build")
    start = held_by_process().reserved_bytes or 0
    if device.type == "cuda":
        memory.start()
    channel.failure_facts = lambda: failure_facts(request, memory)
    if request.answer.get("small_threshold"):
        use_small_threshold()
    setup = build(request, device, objective.build(device, request.seed))
    soak = Soak(request, channel, setup)
    channel.failure_facts = lambda: failure_facts(request, memory) | {"applied_steps": soak.trainer.applied_steps}
    channel.phase("warm_up")
    soak.warm_up()
    channel.phase("measure")
    soak.go()
    channel.send(
        "measurement",
        throughput_unit=f"{objective.unit}_per_second",
        **soak.measurement(),
        peak_memory_bytes=memory.reading().peak_memory_bytes if device.type == "cuda" else soak.largest(start),
        hardware=describe(device) | {"threads": request.threads},
    )
    channel.phase("done")


class Soak:
    """The long loop with its readings."""

    def __init__(self, request: RunRequest, channel: Channel, setup: Setup) -> None:
        self._channel, self._setup, self._answer = channel, setup, request.answer
        self._seconds = float(request.answer["seconds"])
        self.trainer = Trainer(setup, max_grad_norm=request.max_grad_norm)
        if setup.compile_options is not None:
            setup.model.compile(**setup.compile_options)
        self._batches: Iterator[Any] = iter(make_loader(setup, steps_in_block=setup.config.accumulation_steps))
        self._series: list[dict[str, Any]] = []
        self._updates = self._evaluations = self._units = 0
        self._training_seconds = 0.0
        self._tensors: frozenset[int] = frozenset()

    def warm_up(self) -> None:
        """First updates and one evaluation break: what comes later is growth."""
        for _ in range(WARM_UPDATES):
            self._update()
        self._evaluate()
        if differences := knobs.differences(self._setup):
            self._channel.send("applied", config=knobs.read_back(self._setup), differences=differences)
        self._tensors = tensor_ids()
        self._updates = self._evaluations = self._units = 0
        self._training_seconds = 0.0

    def go(self) -> None:
        """Trains until the time is over or somebody asks to stop."""
        begun = read_at = evaluated_at = time.perf_counter()
        every = int(self._answer.get("empty_cache_every") or 0)
        self._read(0.0)
        while (now := time.perf_counter()) - begun < self._seconds and not self._channel.stop_requested:
            self._update()
            if every and self._updates % every == 0:
                self._give_back()
            if now - evaluated_at > self._seconds / BREAKS:
                self._evaluate()
                evaluated_at = time.perf_counter()
            if time.perf_counter() - read_at > self._seconds / READINGS:
                read_at = time.perf_counter()
                self._read(read_at - begun)
        self._read(time.perf_counter() - begun)

    def _update(self) -> None:
        begun = time.perf_counter()
        for _ in range(self._setup.config.accumulation_steps):
            self.trainer.micro_step(self.trainer.place(next(self._batches)))
        update = self.trainer.update()
        self._updates += 1
        self._units += update.units if update.applied else 0
        loss = update.loss
        if self._updates % 20 == 1:
            check_finite(loss, applied=update.applied)
        self._training_seconds += time.perf_counter() - begun

    def _evaluate(self) -> None:
        """The workload's own pass, or one forward without gradients on the longest batch."""
        workload: Any = self._setup.workload
        if hasattr(workload, "evaluate"):
            workload.evaluate(self._setup.model)
        else:
            self._setup.model.eval()
            with torch.no_grad(), self.trainer.forward_context():
                longest = workload.longest(self._setup.config.micro_batch_size)
                workload.loss(self._setup.model, self.trainer.place(longest))
        self._setup.model.train()
        self._evaluations += 1

    def _give_back(self) -> None:
        begun = time.perf_counter()
        if self._setup.device.type == "cuda":
            torch.cuda.empty_cache()
        else:
            trim_heap()
        self._training_seconds += time.perf_counter() - begun

    def _read(self, seconds: float) -> None:
        if self._setup.device.type == "cuda":
            held = held_on_device(self._setup.device, blocks=len(self._series) % LOOKS_AT_BLOCKS == 0)
        else:
            held = held_by_process()
        self._series.append({"seconds": seconds, "updates": self._updates, **held.to_mapping()})
        self._tell(held)

    def _tell(self, held: Held) -> None:
        """A sign of life, with the memory of the moment."""
        last = self._series[-2]["seconds"] if len(self._series) > 1 else 0.0
        self._channel.send(
            "step", kind="optimizer", seconds=max(self._series[-1]["seconds"] - last, 1e-9), units=self._units,
            skipped=False, loss=None, reserved_bytes=held.reserved_bytes, allocated_bytes=held.allocated_bytes,
        )  # fmt: skip

    def largest(self, start_bytes: int) -> int | None:
        """The most that was held at a reading, above what the process held before its model was built."""
        return max(
            (each["reserved_bytes"] - start_bytes for each in self._series if each["reserved_bytes"]), default=None
        )

    def measurement(self) -> dict[str, Any]:
        """What the run found."""
        seconds = self._training_seconds
        kept = keeper_of_new(self._tensors)
        return {
            "series": self._series,
            "updates": self._updates,
            "seconds": self._series[-1]["seconds"],
            "units_per_second": self._units / seconds if seconds else None,
            "evaluations": self._evaluations,
            "tensors": [len(self._tensors), len(tensor_ids())],
            "kept": kept,
            "stop_reason": self._channel.stop_reason,
        }
