"""Which configurations probably do not fit: a guess from the study's own trials, for what to try later. Pure.

Two signs, neither of them a proof. A configuration that asks for at least as much in every ordered knob as one that
ran out of memory; and a peak that a straight line through the two largest measured micro-batches of its family puts
over the limit (peaks are affine in the micro-batch above a knee).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from objectives.config import TrainingConfig
from storage.records import TrialRecord
from tuner.search.memory_order import HOST_KNOBS, SMALLEST_FIRST, Family, family_of

ORDERED = ("activation_checkpointing", "precision", "loss", "attention")
"""Knobs whose order of need is taken for granted here (the order is that of ``SMALLEST_FIRST``)."""

LEFT_OUT = HOST_KNOBS | {"compile", "optimizer"}
"""Knobs that move a peak too little to keep two configurations apart in a guess."""

OVER_BY = 1.02
"""A predicted peak this far over the limit is a probable misfit: nearer ones are worth a trial."""


@dataclass(frozen=True, kw_only=True)
class MemoryGuess:
    """What the finished trials say about the others.

    Attributes:
        misfits: Needs by everything else that must be equal; see :func:`_needs`.
        measured: Micro-batch and peak in bytes of completed trials, by family.
        limit_bytes: None for no limit: then only misfits speak.
    """

    misfits: Mapping[Family, Sequence[tuple[int, ...]]] = field(default_factory=dict)
    measured: Mapping[Family, Sequence[tuple[int, int]]] = field(default_factory=dict)
    limit_bytes: int | None = None

    def doubts(self, config: TrainingConfig) -> bool:
        """Whether the configuration probably needs more than there is."""
        need = _needs(config)
        known = self.misfits.get(_rest(config), ())
        asks_more = any(all(mine >= its for mine, its in zip(need, other, strict=True)) for other in known)
        return asks_more or self._over(config)

    def _over(self, config: TrainingConfig) -> bool:
        points = sorted(dict(self.measured.get(family_of(config), ())).items())[-2:]
        if len(points) < 2 or self.limit_bytes is None or config.micro_batch_size <= points[1][0]:
            return False
        (small, low), (large, high) = points
        slope = (high - low) / (large - small)
        return high + slope * (config.micro_batch_size - large) > OVER_BY * self.limit_bytes


def guess_memory(trials: Iterable[TrialRecord], limit_bytes: int | None) -> MemoryGuess:
    """Learns from finished trials: every ``device_oom``, and every measured peak."""
    misfits: dict[Family, list[tuple[int, ...]]] = defaultdict(list)
    measured: dict[Family, list[tuple[int, int]]] = defaultdict(list)
    for trial in trials:
        config = TrainingConfig.from_mapping(trial.config)
        if trial.outcome == "device_oom":
            misfits[_rest(config)].append(_needs(config))
        elif trial.peak_memory_bytes is not None:
            measured[family_of(config)].append((config.micro_batch_size, trial.peak_memory_bytes))
    return MemoryGuess(misfits=misfits, measured=measured, limit_bytes=limit_bytes)


def _needs(config: TrainingConfig) -> tuple[int, ...]:
    """Micro-batch, whether it accumulates, and the rank of every ordered knob: larger asks for more."""
    ranks = (_rank(SMALLEST_FIRST[name], getattr(config, name)) for name in ORDERED)
    return (config.micro_batch_size, int(config.accumulation_steps > 1), *ranks)


def _rest(config: TrainingConfig) -> Family:
    left_out = {*LEFT_OUT, *ORDERED, "micro_batch_size"}
    return tuple((name, value) for name, value in config.knobs().items() if name not in left_out)


def _rank(order: tuple[Any, ...], value: Any) -> int:
    return order.index(value) if value in order else len(order)
