"""The strategies. One small file each, its source named there; a new one is listed here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.replay.strategies import (
    accelerate,
    autobatch,
    composer,
    deepspeed,
    determined,
    gp,
    grid,
    lightning,
    ludwig,
    nsga2,
    random,
    tpe,
)
from benchmarks.replay.strategies.auto import Auto
from benchmarks.replay.strategies.flagscale import FlagScale
from benchmarks.replay.strategies.ladder import Climb, beside
from benchmarks.replay.strategies.memory_filter import MemoryFilter
from benchmarks.replay.strategies.sampler_loop import SamplerLoop
from benchmarks.replay.strategies.strategy import Kind, Strategy

__all__ = ["BATCH_ONLY", "STRATEGIES", "Strategy"]

BATCH_ONLY: tuple[tuple[str, Climb], ...] = (
    ("deepspeed fast", deepspeed.fast),
    ("lightning power", lightning.power),
    ("lightning binsearch", lightning.binsearch),
    ("composer halving", composer.halving),
    ("accelerate 0.9", accelerate.nine_tenths),
    ("accelerate halving", accelerate.halving),
    ("ludwig doubling", ludwig.doubling),
    ("ultralytics autobatch", autobatch.solve),
)
"""Peers that search the micro-batch alone: with the baseline's other knobs, and again with the best ones."""


_GP = SamplerLoop(make_sampler=gp.make, patience=gp.PATIENCE, models=gp.MODELS)


def _optuna(name: str, loop: SamplerLoop, kind: Kind = "optuna", *, slow: bool = False) -> Strategy:
    return Strategy(name=name, kind=kind, search=loop, slow=slow)


def _batch_only() -> Iterator[Strategy]:
    for name, climb in BATCH_ONLY:
        yield Strategy(name=name, kind="peer", search=beside(climb, "baseline"))
        yield Strategy(name=f"{name} + best knobs", kind="informed", search=beside(climb, "best"))


STRATEGIES: tuple[Strategy, ...] = (
    Strategy(name="auto", kind="ours", search=Auto()),
    Strategy(name="auto without prediction", kind="ablation", search=Auto(predicts=False)),
    Strategy(name="auto without pruning", kind="ablation", search=Auto(prunes=False)),
    Strategy(name="auto after another study", kind="ablation", search=Auto(transfers=True)),
    Strategy(name="auto, engine alone", kind="ablation", search=Auto(engine_alone=True)),
    _optuna("random", SamplerLoop(make_sampler=random.make)),
    _optuna("tpe", SamplerLoop(make_sampler=tpe.make)),
    _optuna("tpe, one objective", SamplerLoop(make_sampler=tpe.make, two_objectives=False)),
    _optuna("tpe, failures untold", SamplerLoop(make_sampler=tpe.make, failures_told=False)),
    _optuna("nsga2", SamplerLoop(make_sampler=nsga2.make)),
    _optuna("gp", _GP, slow=True),
    _optuna("gp, one objective", replace(_GP, two_objectives=False), slow=True),
    _optuna("random + memory filter", SamplerLoop(make_sampler=random.make, refuses=MemoryFilter()), "ablation"),
    _optuna("tpe + memory filter", SamplerLoop(make_sampler=tpe.make, refuses=MemoryFilter()), "ablation"),
    Strategy(name="determined asha", kind="peer", search=determined.asha),
    Strategy(name="nemo grid", kind="peer", search=grid.search),
    Strategy(name="flagscale, memory order", kind="peer", search=FlagScale(order="memory")),
    Strategy(name="flagscale, performance order", kind="peer", search=FlagScale(order="performance")),
    *_batch_only(),
)
