"""The grids recorded over ``objectives/`` alone, on a GPU machine that has neither Optuna nor a store. One tuple."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from objectives.config import KnobValue, TrainingConfig, accumulation_steps
from objectives.knobs import canonical, clashes, config_key, knob, legal_values
from objectives.knobs.knob import Facts

GIBIBYTE = 2**30


@dataclass(frozen=True, kw_only=True)
class DeviceGrid:
    """One grid.

    Attributes:
        settings: Keyword arguments of the objective.
        search: Values by knob.
        baseline: Knob values of the first configuration; it must fit under every cap.
        caps: Memory limits in bytes the table is cut at.
        window_seconds: Each run measures so long.
        warm_load_seconds: Load before the first window of a sitting, so that clocks have settled.
    """

    name: str
    settings: Mapping[str, Any]
    global_batch_size: int
    search: Mapping[str, tuple[KnobValue, ...]]
    baseline: Mapping[str, KnobValue]
    kind: str = "causal_lm"
    caps: tuple[int, ...] = (24 * GIBIBYTE, 40 * GIBIBYTE, 80 * GIBIBYTE)
    window_seconds: float = 3.0
    warm_load_seconds: float = 30.0
    memory_share: float = field(default=0.92)

    def configs(self, facts: Facts) -> dict[str, TrainingConfig]:
        """Every configuration that can run here by key: the baseline first, the others in the order of their keys.

        Keys are hashes, so that order is a shuffled one, the same every time.
        """
        baseline = self._config(self.baseline)
        made = {config_key(each): each for each in self._walk(facts)}
        return {config_key(baseline): baseline} | dict(sorted(made.items()))

    def _walk(self, facts: Facts) -> Iterator[TrainingConfig]:
        legal = {name: legal_values(knob(name), facts, values)[0] for name, values in self.search.items()}
        for values in product(*legal.values()):
            config = self._config({**self.baseline, **dict(zip(legal, values, strict=True))})
            if not clashes(config, facts):
                yield config

    def _config(self, values: Mapping[str, KnobValue]) -> TrainingConfig:
        config = TrainingConfig.from_mapping(values)
        steps = accumulation_steps(global_batch_size=self.global_batch_size, micro_batch_size=config.micro_batch_size)
        return canonical(config.with_values(accumulation_steps=steps))


_TEXT = {"path": "stdlib", "tokenizer": {"train": {"vocab_size": 8192}}, "sequence_length": 1024}

DEVICE_GRIDS: tuple[DeviceGrid, ...] = (
    DeviceGrid(
        name="gpt2-124m",
        settings={
            "model": {
                "config": {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50304}
            },
            "data": _TEXT,
        },
        global_batch_size=128,
        search={
            "micro_batch_size": (2, 4, 8, 16, 32, 64, 128),
            "precision": ("bf16-mixed", "bf16-true"),
            "activation_checkpointing": ("none", "selective", "full"),
            "loss": ("full", "chunked"),
        },
        baseline={"micro_batch_size": 2, "precision": "bf16-mixed", "activation_checkpointing": "full"},
    ),
    DeviceGrid(
        name="llama-1b",
        settings={
            "model": {
                "config": {
                    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 20,
                    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
                }
            },
            "data": _TEXT,
        },
        global_batch_size=64,
        search={
            "micro_batch_size": (1, 2, 4, 8, 16, 32, 64),
            "precision": ("bf16-mixed", "bf16-true"),
            "activation_checkpointing": ("none", "selective", "full"),
            "loss": ("full", "chunked"),
        },
        baseline={"micro_batch_size": 1, "precision": "bf16-mixed", "activation_checkpointing": "full"},
    ),
)  # fmt: skip
"""What there is. GPT-2 of 124 million parameters, and a Llama of about a billion."""


def device_grid_named(name: str) -> DeviceGrid:
    """The grid of that name.

    Raises:
        LookupError: There is none; the message lists those there are.
    """
    for grid in DEVICE_GRIDS:
        if grid.name == name:
            return grid
    raise LookupError(f"no grid {name!r}; there are {', '.join(grid.name for grid in DEVICE_GRIDS)}")
