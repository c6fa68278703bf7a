"""A device made of formulas: for unit tests and for scale. It is no evidence of anything about real ones."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from tuner.search.planner.candidates import Candidates
from tuner.search.planner.observation import Seen
from tuner.search.planner.planner import Plan, Planner, PlannerOptions

GIB = 2**30
KNOBS: Mapping[str, tuple[Any, ...]] = {
    "micro_batch_size": (1, 2, 4, 8, 16, 32, 64),
    "precision": ("fp32", "bf16-mixed", "bf16-true"),
    "activation_checkpointing": ("none", "selective", "full"),
    "attention": ("sdpa", "eager"),
    "loss": ("full", "chunked"),
    "optimizer": ("adamw", "adamw-fused"),
}
LOADER: Mapping[str, tuple[Any, ...]] = {"loader_workers": (0, 2, 4)}
USUAL: Mapping[str, float] = {
    "bf16-mixed": 0.8, "bf16-true": 0.95, "selective": -0.1, "full": -0.25, "eager": -0.15, "chunked": -0.04,
    "adamw-fused": 0.04,
}  # fmt: skip


@dataclass(kw_only=True)
class Device:
    """Throughput, peak and failures of every configuration of some knobs.

    Attributes:
        surprise: Spread of how far effects and interactions are from the usual ones, in logarithms.
        noise: Relative spread between runs.
    """

    seed: int = 0
    knobs: Mapping[str, Sequence[Any]] = field(default_factory=lambda: KNOBS)
    limit_bytes: int = 24 * GIB
    noise: float = 0.03
    surprise: float = 0.1
    loader: bool = False
    global_batch: int = 64

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self.floor = math.exp(self._chance.gauss(math.log(2.0), 0.7))
        self._effects: dict[Any, float] = {}
        self.worker = math.exp(self._chance.uniform(math.log(0.3), math.log(1.5)))
        self.configs = [
            {**dict(zip(self.knobs, values, strict=True)), "accumulation_steps": self.global_batch // values[0]}
            for values in product(*self.knobs.values())
        ]
        self.scale = 1.0
        self.scale = max(self.true_rate(config) for config in self.configs) / 1000

    def effect(self, *key: Any, spread: float) -> float:
        if key not in self._effects:
            made = random.Random(f"{self.seed}{key}")
            self._effects[key] = made.gauss(0, spread)
        return self._effects[key]

    def compute_rate(self, config: Mapping[str, Any]) -> float:
        names = [name for name in self.knobs if name != "micro_batch_size" and name not in LOADER]
        size = config["micro_batch_size"]
        total = sum(
            USUAL.get(config[name], 0.0) + self.effect(name, config[name], spread=self.surprise) for name in names
        )
        for position, one in enumerate(names):
            for other in names[position + 1 :]:
                total += self.effect(one, config[one], other, config[other], spread=self.surprise * 0.3)
        floor = self.floor * (2 if config.get("precision", "fp32") != "fp32" else 1)
        return math.exp(total) / (1 + floor / size)

    def true_rate(self, config: Mapping[str, Any]) -> float:
        rate = self.compute_rate(config)
        if self.loader:
            capacity = self.worker * max(config.get("loader_workers", 1), 1)
            rate = 1 / (1 / rate + 1 / capacity) if config.get("loader_workers") == 0 else min(rate, capacity)
        return rate / self.scale

    def stall(self, config: Mapping[str, Any]) -> float | None:
        if not self.loader:
            return None
        return max(0.0, 1 - self.true_rate(config) * self.scale / self.compute_rate(config))

    def peak(self, config: Mapping[str, Any]) -> float:
        half = {"bf16-true": 0.5, "bf16-mixed": 1.05}.get(config.get("precision", "fp32"), 1.0)
        kept = {"full": 0.25, "selective": 0.6}.get(config.get("activation_checkpointing", "none"), 1.0)
        kept *= 1.3 if config.get("attention") == "eager" else 1.0
        kept *= 0.8 if config.get("loss") == "chunked" else 1.0
        bits = 0.55 if config.get("precision", "fp32") != "fp32" else 1.0
        return (8 * half + 0.9 * kept * bits * config["micro_batch_size"] + 0.4) * GIB

    def run(self, config: Mapping[str, Any], chance: random.Random) -> Seen:
        if self.peak(config) > self.limit_bytes:
            return Seen(config=config, outcome="device_oom", seconds=6.0)
        return Seen(
            config=config,
            outcome="completed",
            throughput=self.true_rate(config) * math.exp(chance.gauss(0, self.noise)),
            peak_memory_bytes=int(self.peak(config)),
            seconds=10.0,
            data_stall_share=self.stall(config),
        )

    def best_rate(self) -> float:
        return max(self.true_rate(config) for config in self.configs if self.peak(config) <= self.limit_bytes)

    def predictions(self) -> list[int]:
        """Raw predictions: half a GiB and 1 % too low."""
        return [int(self.peak(config) * 0.99 - 0.3 * GIB) for config in self.configs]

    def candidates(self, *, predicted: bool = True) -> Candidates:
        return Candidates.of(self.configs, predicted_peak_bytes=self.predictions() if predicted else None)


@dataclass(kw_only=True)
class Search:
    """One search on a device."""

    seen: list[Seen]
    regrets: list[float]
    plan: Plan

    @property
    def launches(self) -> int:
        """Runs out of memory."""
        return sum(each.outcome == "device_oom" for each in self.seen)

    def hit(self, share: float = 0.01) -> int | None:
        """Runs after the baseline until a configuration within this share of the best was run."""
        return next((number for number, regret in enumerate(self.regrets) if regret <= share), None)


def search(
    device: Device, seed: int = 0, *, predicted: bool = True, baseline: Mapping[str, Any] | None = None,
    most: int = 60, options: PlannerOptions | None = None,
) -> Search:  # fmt: skip
    """Runs a planner until it stops."""
    chance = random.Random(seed)
    first = baseline or next(each for each in device.configs if each["micro_batch_size"] == 4)
    planner = Planner(
        device.candidates(predicted=predicted), limit_bytes=device.limit_bytes, device_kind="cuda", seed=seed,
        options=options,
    )  # fmt: skip
    best, seen, regrets, reached = device.best_rate(), [], [], 1.0
    config: Mapping[str, Any] | None = first
    plan = Plan()
    while config is not None and len(seen) < most:
        seen.append(device.run(config, chance))
        if seen[-1].outcome == "completed":
            reached = min(reached, 1 - device.true_rate(config) / best)
        regrets.append(reached)
        plan = planner.plan(seen)
        config = plan.config
    return Search(seen=seen, regrets=regrets, plan=plan)
