"""A short loss curve: the same global batches from the same weights, split one way or another, dropout off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from objectives.trial.batches import PlannedBatches
from objectives.trial.splits import lengths_of
from objectives.trial.worst_case import check_finite

if TYPE_CHECKING:
    from objectives.trial.setup import Setup
    from objectives.trial.trainer import Trainer

FEWEST_UPDATES = 3
BAND_FACTOR = 3.0
"""The band is so many times the largest difference of two runs of the baseline that differ in rounding alone."""
LEAST_BANDS: Mapping[str, float] = {
    "fp32": 1e-4, "tf32": 2e-3, "fp16-mixed": 2e-3, "bf16-mixed": 5e-3, "bf16-true": 1e-2
}  # fmt: skip
"""Relative difference of losses that a precision alone explains."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What some updates showed.

    Attributes:
        losses: Mean per unit, by update.
        seconds: They took together.
        schedules: Changes of the learning rate.
        rounded_away: Share (0 to 1) of the elements whose last update is lost in bf16; None where none was looked at.
    """

    losses: tuple[float, ...]
    seconds: float = 0.0
    schedules: int = 0
    rounded_away: float | None = None


@dataclass(frozen=True, kw_only=True)
class CurveOrder:
    """How one curve is run.

    Attributes:
        updates: How many.
        seconds: It ends early after so long, with :data:`FEWEST_UPDATES` at least.
        mirrored: Each global batch backwards: another order of sums, the same mathematics.
        look_at_rounding: Whether the last update is looked at.
    """

    updates: int
    seconds: float
    mirrored: bool = False
    look_at_rounding: bool = False


def run_curve(setup: Setup, trainer: Trainer, order: CurveOrder, stopped: Callable[[], bool]) -> Curve:
    """Trains so many updates from where the model stands."""
    assert setup.optimizer is not None
    losses: list[float] = []
    begun, lost, schedules = time.perf_counter(), None, Schedules(setup.optimizer)
    for batches in _global_batches(setup, order):
        for batch in batches:
            trainer.micro_step(trainer.place(setup.workload.collate(batch)))
            schedules.look()
        before = _weights(setup) if order.look_at_rounding else None
        update = trainer.update()
        schedules.look()
        lost = _lost_in_bf16(setup, before) if before is not None and update.applied else lost
        losses.append(check_finite(update.loss, applied=update.applied))
        late = time.perf_counter() - begun > order.seconds and len(losses) >= FEWEST_UPDATES
        if len(losses) == order.updates or late or stopped():
            break
    return Curve(
        losses=tuple(losses), seconds=time.perf_counter() - begun, schedules=schedules.changes, rounded_away=lost
    )


def _global_batches(setup: Setup, order: CurveOrder) -> Iterator[list[list[Any]]]:
    """The samples of each micro-batch, global batch by global batch."""
    config, dataset = setup.config, setup.workload.dataset()
    planned = iter(
        PlannedBatches(
            samples=len(dataset),
            lengths=lengths_of(setup.workload),
            micro_batch_size=config.micro_batch_size,
            accumulation_steps=config.accumulation_steps,
            batching=config.batching,
            steps_in_block=config.accumulation_steps,
        )
    )
    while True:
        indices = [next(planned) for _ in range(config.accumulation_steps)]
        if order.mirrored:
            indices = [each[::-1] for each in reversed(indices)]
        yield [[dataset[one] for one in each] for each in indices]


class Schedules:
    """Counts how often an optimizer's learning rate changes: looked at after every micro-step and every update."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._rates = self._now()
        self.changes = 0

    def _now(self) -> list[float]:
        return [float(group["lr"]) for group in self._optimizer.param_groups]

    def look(self) -> None:
        """A change since the last look is one step of a schedule."""
        rates = self._now()
        self.changes += rates != self._rates
        self._rates = rates


def _weights(setup: Setup) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in setup.model.named_parameters() if p.requires_grad}


def _lost_in_bf16(setup: Setup, before: Mapping[str, torch.Tensor]) -> float | None:
    """Share of the elements with an update that bf16 weights would not have taken.

    In bf16 itself: those that stayed where they were though their gradient moved the optimizer. From fp32: those whose
    weight, rounded to bf16, is the same after the update is added to it.
    """
    moved = lost = 0
    for name, parameter in setup.model.named_parameters():
        if name not in before:
            continue
        old, new = before[name], parameter.detach()
        if new.dtype == torch.bfloat16:
            active = _active(setup, parameter)
            moved, lost = moved + int(active.sum()), lost + int((active & (new == old)).sum())
            continue
        update, rounded = new - old, old.to(torch.bfloat16)
        active = update != 0
        same = (rounded.float() + update).to(torch.bfloat16) == rounded
        moved, lost = moved + int(active.sum()), lost + int((active & same).sum())
    return lost / moved if moved else None


def _active(setup: Setup, parameter: torch.Tensor) -> torch.Tensor:
    """Elements whose optimizer state says that they should move."""
    assert setup.optimizer is not None
    state = setup.optimizer.state.get(parameter, {})
    moments = state.get("exp_avg")
    if not isinstance(moments, torch.Tensor) or moments.shape != parameter.shape:
        return torch.ones_like(parameter, dtype=torch.bool)
    return torch.ne(moments, 0)


def band_of(first: Sequence[float], again: Sequence[float], precisions: Sequence[str]) -> float:
    """Relative difference of losses that two runs of one configuration show: by rounding, at least by precision."""
    pairs = zip(first, again, strict=False)
    seen = max((abs(a - b) / max(abs(a), 1e-12) for a, b in pairs), default=0.0)
    return max(BAND_FACTOR * seen, *(LEAST_BANDS[each] for each in precisions))


def leaves_at(examined: Sequence[float], reference: Sequence[float], band: float) -> int | None:
    """Index of the update from which on two curves differ by more than the band, to the end; None where they do not."""
    far = [
        not abs(a - b) <= band * max(abs(b), 1e-12) for a, b in zip(examined, reference, strict=False)
    ]  # not-a-number is far
    first = len(far)
    while first and far[first - 1]:
        first -= 1
    return first if first < len(far) else None


@dataclass(frozen=True, kw_only=True)
class Curves:
    """The winner's, the baseline's and the baseline's again.

    Attributes:
        shares: Share of lost updates by precision, as far as they were looked at.
    """

    examined: Curve
    reference: Curve
    again: Curve
    shares: Mapping[str, float] = field(default_factory=dict)

    def to_mapping(self, precisions: Sequence[str]) -> dict[str, Any]:
        """As a ``verify`` run's measurement holds it (:class:`tuner.doctor.evidence.LossCurve`)."""
        count = min(len(self.examined.losses), len(self.reference.losses))
        examined, reference = self.examined.losses[:count], self.reference.losses[:count]
        band = band_of(reference, self.again.losses, precisions)
        return {
            "examined": list(examined),
            "reference": list(reference),
            "band": band,
            "leaves_at": leaves_at(examined, reference, band),
        }
