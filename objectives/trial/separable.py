"""Why two splits of one global batch give two gradients: whether samples may be separated at all, and what goes wrong.

Two groups of samples are run apart and together. Where the loss is a sum over samples, the gradient of both together is
the sum of the two. Where it is a mean, it is a weighted sum of them. Where it is neither, the samples see each other:
batch norm, an auxiliary or contrastive loss, or padding that is not masked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from objectives.measure.gradients import Gradient, fitted, kept
from objectives.trial.settled import reseed, statistics_modules
from objectives.trial.splits import collated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from objectives.trial.setup import Setup
    from objectives.trial.trainer import Trainer

RESIDUAL_BOUND = 1e-4
"""What is left of the best weighted sum in fp32 by rounding alone; companions that matter leave 1e-3 and more."""
WEIGHT_BOUND = 1e-3
"""So near to 1 a weight counts as 1."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What two groups of samples, apart and together, show.

    Attributes:
        residual: What no weighted sum of the two gradients explains of the one of both together, relative.
        weights: The best weights; 1 and 1 for a loss that is a sum.
        units: Real units as the loss counts them: first group, second group, both together.
        refused: Why the groups could not be run; None when they could.
    """

    residual: float = 0.0
    weights: tuple[float, float] = (1.0, 1.0)
    units: tuple[int, int, int] = (0, 0, 0)
    refused: str | None = None

    @property
    def companions_matter(self) -> bool:
        """Whether a sample's gradient depends on the others in its micro-batch."""
        return self.refused is not None or not self.residual <= RESIDUAL_BOUND

    @property
    def sums(self) -> bool:
        """Whether the loss is a sum over its samples."""
        return all(abs(weight - 1) <= WEIGHT_BOUND for weight in self.weights)

    @property
    def units_add_up(self) -> bool:
        """Whether both groups together have as many units as apart."""
        return self.units[0] + self.units[1] == self.units[2]


def probe(setup: Setup, trainer: Trainer, groups: tuple[Sequence[int], Sequence[int]], seed: int) -> Probe:
    """Runs the two groups of sample indices apart and together. Changes no weight, leaves no gradient."""
    first, second, both = collated(setup.workload, [groups[0], groups[1], [*groups[0], *groups[1]]])
    try:
        found = [_raw(setup, trainer, batch, seed) for batch in (first, second, both)]
    except (ValueError, RuntimeError) as error:
        return Probe(refused=f"{type(error).__name__}: {error}".splitlines()[0][:200])
    (a, units_a), (b, units_b), (whole, units) = found
    left, right, residual = fitted(whole, (a, b))
    return Probe(residual=residual, weights=(left, right), units=(units_a, units_b, units))


def _raw(setup: Setup, trainer: Trainer, batch: object, seed: int) -> tuple[Gradient, int]:
    """The gradient of the loss exactly as the workload returns it, and its units."""
    reseed(seed)
    with trainer.forward_context():
        loss, units = setup.workload.loss(setup.model, trainer.place(batch))
    torch.autograd.backward(loss)
    gradient = kept(setup.model)
    trainer.drop()
    return gradient, units


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why the gradients differ. Exactly one of the two is set.

    Attributes:
        not_comparable: The model's own design: the reason, for people.
        fault: A kind of fault: ``mean_of_means``, ``units``, ``accumulation``.
        text: One sentence for people.
    """

    not_comparable: str | None = None
    fault: str | None = None
    text: str = ""


def explain(model: torch.nn.Module, probed: Probe | None, *, again: float, bound: float) -> Explanation:
    """Judges.

    Args:
        model: For the modules that compute with a whole micro-batch.
        probed: None where the batch has too few samples for it.
        again: Distance between two runs of one split from two seeds.
        bound: What rounding explains.
    """
    if again > bound:
        return Explanation(
            not_comparable=f"one split gives two gradients from two seeds, {again:.2g} apart with dropout off: the "
            "model draws random numbers that its modules do not name"
        )
    if (normed := statistics_modules(model)) and (probed is None or probed.companions_matter):
        return Explanation(
            not_comparable=f"batch norm: {_names(normed)} compute with the statistics of each micro-batch, so another "
            "micro-batch size is another training"
        )
    if probed is None:
        return Explanation(fault="accumulation", text="the two splits give two gradients")
    return _of_probe(probed)


def _of_probe(probed: Probe) -> Explanation:
    if probed.refused is not None:
        return Explanation(not_comparable=f"the model cannot run so small a micro-batch ({probed.refused})")
    if probed.companions_matter:
        return Explanation(
            not_comparable="a sample's gradient depends on the others in its micro-batch "
            f"({probed.residual:.2g} of it is in no sum over samples): an auxiliary or contrastive loss, or padding "
            "that is not masked. Another micro-batch size is another training"
        )
    if not probed.sums:
        left, right = probed.weights
        return Explanation(
            fault="mean_of_means",
            text="the loss is averaged within each micro-batch: a token weighs by the company it keeps (two groups of "
            f"samples enter their common gradient with {left:.3g} and {right:.3g} times their own; both must be 1). "
            "Return the sum of the loss and the number of real units",
        )
    if not probed.units_add_up:
        a, b, both = probed.units
        return Explanation(
            fault="units",
            text=f"the number of units depends on the split: {a} and {b} apart, {both} together: padding is counted. "
            "Count real units alone",
        )
    return Explanation(
        fault="accumulation",
        text="single micro-batches have the right gradient, their sum has not: something empties or changes gradients "
        "between micro-batches (zero_grad, a hook on .grad, state that each call changes)",
    )


def _names(names: Sequence[str]) -> str:
    rest = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + rest
