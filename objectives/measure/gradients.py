"""Gradients of one global batch, kept and compared: what the optimizer would see, and how far two of them lie apart.

A distance is the L2 norm of the difference over that of the reference, all parameters together. What rounding explains
was measured on a small Llama with rows of 13 to 125 tokens: 3e-7 in fp32, 4e-3 in bf16 autocast; averaging the means of
micro-batches instead of their tokens gives 0.2 to 0.8 in either.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from objectives.contract import Batch
    from objectives.trial.setup import Setup
    from objectives.trial.trainer import Trainer

Gradient = Mapping[str, torch.Tensor]
"""By parameter name, in fp32 on the host; parameters without a gradient are missing."""

BOUNDS: Mapping[str, float] = {"fp32": 1e-5, "tf32": 5e-3, "fp16-mixed": 5e-3, "bf16-mixed": 2e-2, "bf16-true": 2e-2}
"""Largest distance that rounding explains, by precision: 10 to 30 times what was seen."""
SCALE_FACTOR, LARGEST_BOUND = 3.0, 0.1
"""A precision that is far from fp32 on this model gets a bound of so many times that distance, at most the second."""
MOST_PARAMETERS = 10
MOST_OVERFLOWS = 30
"""A loss scaler halves its scale at each skipped step until the gradient is finite."""
UNFOUND = 0.05
"""Parameters whose gradient is below this share of the mean element's are compared with that mean instead: noise."""


def gradient_of(setup: Setup, trainer: Trainer, batches: Sequence[Batch]) -> Gradient:
    """The gradient of these micro-batches as the optimizer of that trainer sees it. Changes no weight.

    Raises:
        ArithmeticError: The loss scaler skipped every step.
    """
    assert setup.optimizer is not None
    seen: dict[str, torch.Tensor] = {}
    with _caught(setup, seen):
        for _ in range(MOST_OVERFLOWS):
            for batch in batches:
                trainer.micro_step(trainer.place(batch))
            if trainer.update().applied:
                return seen
    raise ArithmeticError(f"the gradient overflows at every loss scale: {MOST_OVERFLOWS} steps in a row were skipped")


@contextmanager
def _caught(setup: Setup, seen: dict[str, torch.Tensor]) -> Iterator[None]:
    """Takes the gradients at the optimizer's step and leaves it nothing to do."""

    def take(_optimizer: Any, _arguments: Any, _named: Any) -> None:
        seen.clear()
        seen.update(kept(setup.model))
        for parameter in setup.model.parameters():
            parameter.grad = None

    assert setup.optimizer is not None
    handle = setup.optimizer.register_step_pre_hook(take)
    try:
        yield
    finally:
        handle.remove()


def kept(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A copy of the gradients that stand in a model, in fp32 on the host."""
    found: dict[str, torch.Tensor] = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            gradient = parameter.grad.detach()
            dense = gradient.to_dense() if gradient.is_sparse else gradient
            found[name] = dense.to(device="cpu", dtype=torch.float32, copy=True)
    return found


def norm(gradient: Gradient) -> float:
    """L2 norm over all parameters."""
    return math.sqrt(sum(dot(one, one) for one in gradient.values()))


def dot(left: torch.Tensor, right: torch.Tensor) -> float:
    """Inner product, added up in fp64."""
    return float(torch.dot(left.flatten().double(), right.flatten().double()))


def inner(left: Gradient, right: Gradient) -> float:
    """Inner product of two gradients; a missing parameter counts as zeros."""
    return sum(dot(one, right[name]) for name, one in left.items() if name in right)


def distance(examined: Gradient, reference: Gradient) -> float:
    """Relative L2 distance in total. Infinite when the reference is zero and the other is not, or one is not finite."""
    off = math.sqrt(sum(_off(name, examined, reference) for name in {*examined, *reference}))
    size = norm(reference)
    if not math.isfinite(off) or not math.isfinite(size):
        return math.inf
    return off / size if size else (math.inf if off else 0.0)


def _off(name: str, examined: Gradient, reference: Gradient) -> float:
    left, right = examined.get(name), reference.get(name)
    difference = left - right if left is not None and right is not None else left if left is not None else right
    assert difference is not None
    return dot(difference, difference)


def by_parameter(examined: Gradient, reference: Gradient, most: int = MOST_PARAMETERS) -> list[tuple[str, float]]:
    """The parameters that lie farthest apart, as (name, relative L2 distance), farthest first."""
    elements = sum(one.numel() for one in reference.values())
    mean = norm(reference) / math.sqrt(elements) if elements else 0.0
    found = []
    for name in {*examined, *reference}:
        one = reference.get(name)
        size = 0.0 if one is None else math.sqrt(dot(one, one))
        least = UNFOUND * mean * math.sqrt(one.numel() if one is not None else examined[name].numel())
        off = math.sqrt(_off(name, examined, reference))
        found.append((name, off / max(size, least) if max(size, least) else (math.inf if off else 0.0)))
    return sorted(found, key=lambda each: (-each[1], each[0]))[:most]


def bound_of(precision: str, scale: float | None) -> float:
    """The largest distance that rounding explains.

    Args:
        precision: The knob's word.
        scale: Distance of the reference split in this precision from its fp32 gradient; None where it was not computed.
    """
    fixed = BOUNDS[precision]
    if scale is None or not math.isfinite(scale):
        return fixed
    return max(fixed, min(SCALE_FACTOR * scale, LARGEST_BOUND))


def fitted(whole: Gradient, parts: tuple[Gradient, Gradient]) -> tuple[float, float, float]:
    """The two weights that bring two gradients' sum nearest to a third, and what is left of it, relative.

    Parallel parts share their weight alike.
    """
    (a, b), size = parts, norm(whole)
    aa, bb, ab = inner(a, a), inner(b, b), inner(a, b)
    wa, wb = inner(whole, a), inner(whole, b)
    determinant = aa * bb - ab * ab
    if determinant <= 1e-12 * max(aa * bb, 1e-300):
        together = aa + bb + 2 * ab
        first = second = (wa + wb) / together if together > 0 else 0.0
    else:
        first, second = (wa * bb - wb * ab) / determinant, (wb * aa - wa * ab) / determinant
    mixed = {name: first * a.get(name, 0.0) + second * b.get(name, 0.0) for name in {*a, *b}}
    tensors = {name: one for name, one in mixed.items() if isinstance(one, torch.Tensor)}
    return first, second, (distance(tensors, whole) if size else 0.0)
