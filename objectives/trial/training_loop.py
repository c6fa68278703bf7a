"""One measured run, from the empty process to its measurement. Reads top to bottom as the child lives it.

build -> (compile) -> worst case, under the memory cap -> load -> warm up -> measure -> the same batches, in place
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from objectives import knobs
from objectives.config import TrainingConfig
from objectives.contract import load_objective
from objectives.measure.energy import EnergyMeter
from objectives.measure.flops import count_flops_per_unit
from objectives.measure.hardware import Conditions, describe
from objectives.measure.memory import open_memory
from objectives.measure.timing import open_timer
from objectives.preload import import_model_code
from objectives.trial.blocks import BlockLoop, steps_in_block
from objectives.trial.compiled import compile_and_run_once
from objectives.trial.loader_room import batch_bytes, require_loader_room
from objectives.trial.setup import Setup
from objectives.trial.trainer import Trainer
from objectives.trial.worst_case import run_worst_case

if TYPE_CHECKING:
    from objectives.measure.memory import Memory
    from objectives.trial.channel import Channel
    from objectives.trial.protocol import RunRequest


class NotApplied(RuntimeError):
    """The process does not do what was asked: a knob read back from the running objects differs."""


def run(request: RunRequest, channel: Channel) -> None:
    """Trains ``request.config`` and sends its measurement. Failures leave as the exceptions they are."""
    started = time.perf_counter()
    device = open_device(request)
    memory = open_memory(device, request.memory_limit_bytes, cap=request.cap_memory)
    memory.warm(request.threads)
    import_model_code(request.objective)  # a cold child would count it as the model's memory
    objective = load_objective(request.objective)

    channel.phase("build")
    memory.start()
    channel.failure_facts = lambda: failure_facts(request, memory)
    setup = build(request, device, objective.build(device, request.seed))
    trainer = Trainer(setup, max_grad_norm=request.max_grad_norm)
    channel.failure_facts = lambda: failure_facts(request, memory) | {"applied_steps": trainer.applied_steps}
    timer = open_timer(device)
    longest = setup.workload.longest(setup.config.micro_batch_size)
    require_loader_room(setup.config, longest)
    flops_per_unit = count_flops_per_unit(setup.workload, trainer.place(longest)) if device.type == "cuda" else None
    compiled = compile_and_run_once(setup, trainer, longest, channel, memory)

    channel.phase("worst_case")
    worst = run_worst_case(
        trainer,
        longest,
        accumulation_steps=setup.config.accumulation_steps,
        synchronize=timer.synchronize,
        on_update=lambda update, seconds, loss: channel.send(
            "step", kind="optimizer", seconds=seconds, units=update.units, skipped=not update.applied, loss=loss
        ),
    )
    reading = memory.reading()
    channel.send("memory", **reading.to_mapping(), used_share=memory.used_share())
    memory.lift()

    channel.phase("load")
    micro_steps = steps_in_block(setup.config.accumulation_steps, worst, request.window.max_seconds)
    loop = BlockLoop(channel, setup, trainer, timer, request.window, micro_steps)
    send_applied(setup, channel)
    setup_seconds = time.perf_counter() - started - compiled.seconds

    channel.phase("warm_up")
    warm_up_seconds = loop.warm_up()
    meter, conditions = EnergyMeter(device), Conditions(device)
    channel.phase("measure")
    window_seconds = loop.measure(between=conditions.sample)
    meter.stop()
    stall_begun = time.perf_counter()
    stall = loop.stall()
    channel.send(
        "measurement",
        throughput_unit=f"{objective.unit}_per_second",
        **loop.measurement(),
        window_seconds=window_seconds,
        setup_seconds=setup_seconds,
        warm_up_seconds=warm_up_seconds,
        compile=compiled.to_mapping(),
        worst_case_seconds=worst.seconds,
        batch_bytes=batch_bytes(longest),
        data_stall_share=stall,
        stall_seconds=time.perf_counter() - stall_begun,
        flops_per_unit=flops_per_unit,
        energy_joules=meter.joules(window_seconds),
        conditions=conditions.to_mapping(),
        memory=memory.reading(after=reading).to_mapping(),
        hardware=describe(device) | {"threads": request.threads, "cudnn_benchmark": torch.backends.cudnn.benchmark},
    )
    evaluate(request, setup, channel, memory)
    channel.phase("done")


def open_device(request: RunRequest) -> torch.device:
    """The device of the run. For CUDA the one visible device must be the one that was leased."""
    torch.set_num_threads(request.threads)
    if request.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", 0)
    found = str(describe(device)["uuid"])
    if request.device_uuid and found != request.device_uuid:
        raise NotApplied(f"asked for device {request.device_uuid}, this process sees {found}")
    torch.backends.cudnn.benchmark = False  # per-shape search spikes memory with variable lengths
    return device


def build(request: RunRequest, device: torch.device, workload: Any) -> Setup:
    """The setup with every knob applied, dropout and shuffling from the study's seed."""
    torch.manual_seed(request.seed)
    setup = Setup(
        device=device,
        workload=workload,
        config=TrainingConfig.from_mapping(request.config),
        learning_rate=request.learning_rate,
    )
    knobs.apply_all(setup)
    return setup


def failure_facts(request: RunRequest, memory: Memory) -> dict[str, Any]:
    """What a failure is judged by beside its exception: how full the memory was, and whether the cap refused."""
    return {
        "memory_used_share": memory.used_share(),
        "cap_set": request.cap_memory and request.memory_limit_bytes is not None,
        "cap_reached": memory.cap_reached(),
    }


def send_applied(setup: Setup, channel: Channel) -> None:
    """Reads the configuration back from the running objects; a difference ends the run (invariant 3)."""
    differences = knobs.differences(setup)
    channel.send("applied", config=knobs.read_back(setup), differences=differences)
    if differences:
        raise NotApplied("; ".join(f"{d['knob']}: asked {d['asked']!r}, found {d['found']!r}" for d in differences))


def evaluate(request: RunRequest, setup: Setup, channel: Channel, memory: Memory) -> None:
    """One evaluation pass in a confirmation, where the workload has one: training may fit where evaluation does not."""
    if request.purpose != "confirm" or not hasattr(setup.workload, "evaluate"):
        return
    channel.phase("eval")
    setup.workload.evaluate(setup.model)
    channel.send("memory", phase="eval", **memory.reading().to_mapping(), used_share=memory.used_share())
