"""One measured run, from the empty process to its measurement. Reads top to bottom as the child lives it.

    build -> (compile) -> worst case, under the memory cap -> load -> warm up -> measure -> cached comparison

What a step is timed with never waits inside a block: the timer marks boundaries and waits once per block.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from objectives import knobs
from objectives.config import TrainingConfig
from objectives.contract import load_objective
from objectives.measure.energy import EnergyMeter
from objectives.measure.hardware import conditions, describe
from objectives.measure.memory import open_memory
from objectives.measure.timing import open_timer
from objectives.measure.window import Block, is_warm, narrow_enough, stall_share, summarise
from objectives.trial.batches import make_loader
from objectives.trial.compiled import compile_and_run_once
from objectives.trial.setup import Setup
from objectives.trial.trainer import NumericalFault, Trainer, Update
from objectives.trial.worst_case import WorstCase, check_finite, run_worst_case

if TYPE_CHECKING:
    from collections.abc import Iterator

    from objectives.measure.memory import Memory
    from objectives.measure.timing import Timer
    from objectives.trial.channel import Channel
    from objectives.trial.protocol import RunRequest

BLOCKS_IN_WINDOW = 20
"""A window should hold at least so many blocks, for its batch means (FACTS: fewer say nothing about their own error)."""
FEWEST_MICRO_STEPS = 3
"""A cut block has at least so many micro-steps: the first, which creates gradients, and two that add to them."""
WARM_UP_SHARE = 1.0
"""Warm-up takes at most this share of the longest window, plus the load that was asked for."""
LARGEST_SKIPPED_SHARE = 0.2
"""More skipped updates than this in the window and the configuration does not train."""


class NotApplied(RuntimeError):
    """The process does not do what was asked: a knob read back from the running objects differs."""


@dataclass(kw_only=True)
class Progress:
    """What the loop has seen so far; it lives in the child alone."""

    blocks: list[Block] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    batches: list[Any] = field(default_factory=list)


def run(request: RunRequest, channel: Channel) -> None:
    """Trains ``request.config`` and sends its measurement. Failures leave as the exceptions they are."""
    started = time.perf_counter()
    device = open_device(request)
    memory = open_memory(device, request.memory_limit_bytes if request.cap_memory else None)
    memory.warm(request.threads)
    objective = load_objective(request.objective)

    channel.phase("build")
    memory.start()
    config = TrainingConfig.from_mapping(request.config)
    torch.manual_seed(request.seed)
    setup = Setup(
        device=device,
        workload=objective.build(device, request.seed),
        config=config,
        learning_rate=request.learning_rate,
    )
    knobs.apply_all(setup)
    trainer = Trainer(setup, max_grad_norm=request.max_grad_norm)
    timer = open_timer(device)
    longest = setup.workload.longest(config.micro_batch_size)
    compiled = compile_and_run_once(setup, trainer, longest, channel, memory)

    channel.phase("worst_case")
    worst = run_worst_case(
        trainer,
        longest,
        accumulation_steps=config.accumulation_steps,
        synchronize=timer.synchronize,
        clock=time.perf_counter,
    )
    reading = memory.reading()
    channel.send("memory", **reading.to_mapping(), used_share=memory.used_share())
    memory.lift()

    channel.phase("load")
    micro_steps = steps_in_block(config.accumulation_steps, worst, request.window.max_seconds)
    loop = Loop(request, channel, setup, trainer, timer, micro_steps)
    verify_applied(setup, channel, loop)
    setup_seconds = time.perf_counter() - started - compiled.seconds

    warm_up_seconds = loop.warm_up()
    meter = EnergyMeter(device)
    channel.phase("measure")
    window_seconds = loop.measure()
    measurement = loop.measurement(objective.unit)
    measurement |= {
        "window_seconds": window_seconds,
        "setup_seconds": setup_seconds,
        "warm_up_seconds": warm_up_seconds,
        "warm_up_steps": loop.warm_up_steps,
        "compile": compiled.to_mapping(),
        "data_stall_share": loop.stall(),
        "energy_joules": meter.joules(window_seconds),
        "memory": memory.reading(after=reading).to_mapping(),
        "conditions": conditions(device),
    }
    channel.send("measurement", **measurement)
    evaluate(request, setup, channel, memory)
    channel.phase("done")


def open_device(request: RunRequest) -> torch.device:
    """The device of the run. For CUDA the one visible device must be the one that was leased."""
    torch.set_num_threads(request.threads)
    if request.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", 0)
    found = str(describe("cuda")["uuid"])
    if request.device_uuid and found != request.device_uuid:
        raise NotApplied(f"asked for device {request.device_uuid}, this process sees {found}")
    torch.backends.cudnn.benchmark = False  # per-shape search spikes memory with variable lengths (case H11)
    return device


def steps_in_block(accumulation_steps: int, worst: WorstCase, window_seconds: float) -> int:
    """Micro-steps per measured block: all of them where 20 whole optimizer steps fit the window, else as many as let 20 fit."""
    room = window_seconds / BLOCKS_IN_WINDOW - worst.optimizer_seconds
    fitting = int(room / max(worst.micro_seconds, 1e-9))
    return min(accumulation_steps, max(FEWEST_MICRO_STEPS, fitting))


def verify_applied(setup: Setup, channel: Channel, loop: Loop) -> None:
    """Reads the configuration back from the running objects; a difference ends the run (invariant 3)."""
    found, differences = knobs.read_back(setup), knobs.differences(setup)
    samples = loop.first_batch_samples
    if samples != setup.config.micro_batch_size:
        differences.append({"knob": "micro_batch_size", "asked": setup.config.micro_batch_size, "found": samples})
    channel.send("applied", config=found | {"micro_batch_size": samples}, differences=differences)
    if differences:
        raise NotApplied("; ".join(f"{d['knob']}: asked {d['asked']!r}, found {d['found']!r}" for d in differences))


def evaluate(request: RunRequest, setup: Setup, channel: Channel, memory: Memory) -> None:
    """One evaluation pass in a confirmation, where the workload has one: training may fit and evaluation not (case D09)."""
    if request.purpose != "confirm" or not hasattr(setup.workload, "evaluate"):
        return
    channel.phase("eval")
    setup.workload.evaluate(setup.model)
    channel.send("memory", phase="eval", **memory.reading().to_mapping(), used_share=memory.used_share())


class Loop:
    """Blocks of micro-steps and an update, timed; the same calls serve warm-up and window."""

    def __init__(
        self, request: RunRequest, channel: Channel, setup: Setup, trainer: Trainer, timer: Timer, micro_steps: int
    ) -> None:
        self._request, self._channel, self._setup = request, channel, setup
        self._trainer, self._timer, self._micro_steps = trainer, timer, micro_steps
        self._batches: Iterator[Any] = iter(make_loader(setup, steps_in_block=micro_steps))
        self._first: list[Any] = [next(self._batches)]
        self._window = Progress()
        self.warm_up_steps = 0

    @property
    def first_batch_samples(self) -> int:
        """Samples the loader really puts into a micro-batch."""
        assert self._setup.loader is not None
        return len(next(iter(self._setup.loader.batch_sampler)))  # type: ignore[arg-type]

    def _next(self) -> Any:
        return self._first.pop() if self._first else next(self._batches)

    def block(self, progress: Progress) -> Block:
        """One block: some micro-steps and an update; waits for the device once, at its end."""
        waits, units, kept = 0.0, [], []
        self._timer.start()
        for _ in range(self._micro_steps):
            asked = time.perf_counter()
            batch = self._next()
            waits += time.perf_counter() - asked
            placed = self._trainer.place(batch)
            units.append(self._trainer.micro_step(placed))
            self._timer.mark()
            kept.append(placed)
        update = self._trainer.update()
        self._timer.mark()
        *micro_seconds, optimizer_seconds = self._timer.resolve()
        block = Block(
            micro_seconds=tuple(micro_seconds),
            micro_units=tuple(units),
            optimizer_seconds=optimizer_seconds,
            accumulation_steps=self._setup.config.accumulation_steps,
            applied=update.applied,
            data_wait_seconds=waits,
            overlapped_loading=self._setup.config.loader_workers > 0,
        )
        progress.blocks.append(block)
        progress.batches = kept
        self._report(block, update, progress)
        return block

    def _report(self, block: Block, update: Update, progress: Progress) -> None:
        loss = check_finite(update.loss, applied=update.applied)
        progress.losses.append(loss)
        self._channel.send(
            "step",
            kind="optimizer",
            seconds=block.step_seconds,
            host_wait_seconds=block.data_wait_seconds,
            units=block.units,
            skipped=not update.applied,
            loss=loss,
            micro_steps=len(block.micro_seconds),
        )

    def warm_up(self) -> float:
        """Runs blocks until their times have settled (and the asked load is over). Returns the seconds it took."""
        self._channel.phase("warm_up")
        begun, progress = time.perf_counter(), Progress()
        load = self._request.window.warm_load_seconds
        most = load + WARM_UP_SHARE * self._request.window.max_seconds
        while not self._channel.stop_requested:
            self.block(progress)
            elapsed = time.perf_counter() - begun
            if elapsed >= load and (is_warm([b.step_seconds for b in progress.blocks]) or elapsed >= most):
                break
        self.warm_up_steps = len(progress.blocks)
        return time.perf_counter() - begun

    def measure(self) -> float:
        """Runs the window. Returns its seconds."""
        begun = time.perf_counter()
        while True:
            self.block(self._window)
            elapsed = time.perf_counter() - begun
            if self._channel.stop_requested or narrow_enough(self._window.blocks, self._request.window, elapsed):
                break
        self._refuse_if_most_was_skipped()
        return time.perf_counter() - begun

    def _refuse_if_most_was_skipped(self) -> None:
        blocks = self._window.blocks
        skipped = sum(not block.applied for block in blocks)
        if skipped > LARGEST_SKIPPED_SHARE * len(blocks):
            raise NumericalFault(f"{skipped} of {len(blocks)} updates in the window were skipped by the loss scaler")

    def stall(self) -> float:
        """Share of a micro-step that waits for data: the window's last block against the same batches already in place."""
        loaded = self._window.blocks[-1].micro_seconds
        self._timer.start()
        for placed in self._window.batches:
            self._trainer.micro_step(placed)
            self._timer.mark()
        cached = self._timer.resolve()
        self._trainer.drop()
        return stall_share(loaded, cached)

    def measurement(self, unit: str) -> dict[str, Any]:
        """The window's numbers as the ``measurement`` event carries them."""
        blocks = self._window.blocks
        summary = summarise(blocks)
        return {
            "throughput_unit": f"{unit}_per_second",
            **summary.to_mapping(),
            "step_seconds_samples": [block.step_seconds for block in blocks],
            "micro_steps_in_block": self._micro_steps,
            "composed": self._micro_steps < self._setup.config.accumulation_steps,
            "skipped_steps": sum(not block.applied for block in blocks),
            "host_wait_share": sum(b.data_wait_seconds for b in blocks) / sum(b.wall_seconds for b in blocks),
            "first_loss": self._window.losses[0],
            "last_loss": self._window.losses[-1],
            "stopped_early": bool(self._channel.stop_requested),
        }
