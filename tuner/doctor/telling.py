"""Figures as the statements and the advice put them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tuner.cli import words
from tuner.cli.words import duration, number, rate, value
from tuner.doctor.check import Interval

if TYPE_CHECKING:
    from objectives.config import TrainingConfig
    from tuner.doctor.pairs import Gain

__all__ = [
    "batch_words",
    "counted",
    "duration",
    "gain_words",
    "knobs_words",
    "number",
    "percent",
    "rate",
    "size",
    "times",
    "value",
]


def size(count: float | None) -> str:
    """Bytes as people read them; below half a MiB in KiB."""
    return f"{count / 1024:.0f} KiB" if count is not None and 0 < abs(count) < 2**19 else words.size(count)


def counted(count: int, noun: str) -> str:
    """``1 loader worker``, ``3 loader workers``."""
    return f"{count} {noun if count == 1 else noun + ('es' if noun.endswith('ch') else 's')}"


def percent(share: float) -> str:
    """A share (0 to 1): ``3.4 %``, ``42 %``, ``0.02 %``."""
    hundred = 100 * share
    return f"{hundred:.0f} %" if abs(hundred) >= 10 or not hundred else f"{hundred:.2g} %"


def times(ratio: float, interval: Interval | None = None) -> str:
    """A ratio of throughputs with its interval: ``1.42x [1.36, 1.48]``."""
    bounds = "" if interval is None else f" [{interval[0]:.2f}, {interval[1]:.2f}]"
    return f"{ratio:.2f}x{bounds}"


def gain_words(gain: Gain) -> str:
    """A measured gain: the ratio, its interval, and what it does to the peak."""
    added = gain.memory_bytes
    memory = "" if added is None else f", peak memory {'+' if added >= 0 else '-'}{size(abs(added))}"
    return f"{times(gain.ratio, (gain.low, gain.high))}{memory}"


def batch_words(config: TrainingConfig, ranks: int) -> str:
    """The batch as its numbers: ``micro-batch 4 x 16 accumulation steps = 64`` (with ranks where there are several)."""
    rows = config.micro_batch_size * config.accumulation_steps * ranks
    over = f" x {ranks} ranks" if ranks > 1 else ""
    steps = f"{config.accumulation_steps} accumulation step{'s' * (config.accumulation_steps != 1)}"
    return f"micro-batch {config.micro_batch_size} x {steps}{over} = {rows}"


def knobs_words(knobs: Mapping[str, Any]) -> str:
    """Knob values in one line."""
    return ", ".join(f"{name} {value(given)}" for name, given in knobs.items())
