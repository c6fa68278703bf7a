"""What a prediction says, and how it is put together from the pieces that were played through. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

PARAMETERS, GRADIENTS, OPTIMIZER_STATE = "parameters", "gradients", "optimizer_state"
ACTIVATIONS, TEMPORARIES = "activations", "temporaries"
CATEGORIES = (PARAMETERS, GRADIENTS, OPTIMIZER_STATE, ACTIVATIONS, TEMPORARIES)
"""``parameters``: the model's, buffers included. ``gradients``: what stands in a parameter's ``.grad``.
``optimizer_state``: what the optimizer keeps between steps. ``activations``: made while gradients are recorded, so in
the forward pass (recomputed ones, too), and the batch. ``temporaries``: made in the backward pass or the update and in
none of the others."""


class Unpredictable(Exception):
    """This configuration cannot be played through with fakes; the text is the reason, for people."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The predicted peak of one configuration.

    Attributes:
        peak_memory_bytes: Bytes of tensors at the peak; None when it cannot be predicted (``note`` says why).
        categories: The same bytes by category (:data:`CATEGORIES`); empty without a peak.
        operator_at_peak: The operator whose result made the peak, as PyTorch names it (``aten.mm.default``).
        seconds: What this prediction cost; what it shares with others is charged to the first.
        note: What to know about it: a substitution, a guess, or why there is none. None when there is nothing to say.
        wide: Whether the note makes the error larger than usual.
    """

    peak_memory_bytes: int | None
    categories: Mapping[str, int] = field(default_factory=dict)
    operator_at_peak: str = ""
    seconds: float = 0.0
    note: str | None = None
    wide: bool = False

    def to_mapping(self) -> dict[str, Any]:
        """Plain data for an event."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Prediction:
        """The inverse of :meth:`to_mapping`."""
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The largest sum of live bytes in some stretch of work.

    Attributes:
        categories: Bytes by category at that moment.
        operator: What had just been computed.
    """

    categories: Mapping[str, int]
    operator: str

    @property
    def total_bytes(self) -> int:
        """All categories."""
        return sum(self.categories.values())

    def plus(self, category: str, added_bytes: int) -> Peak:
        """The same moment with more (or, negative, less) of one category alive."""
        changed = {**self.categories, category: self.categories.get(category, 0) + added_bytes}
        return Peak(categories=changed, operator=self.operator)


@dataclass(frozen=True, kw_only=True)
class MicroPiece:
    """One micro-step of a family at one size, before there is an optimizer state.

    Attributes:
        peak: Its peak.
        batch_bytes: The batch, which lives on during the update.
        guessed: Whether the loss asked for a value that only a run knows.
    """

    peak: Peak
    batch_bytes: int
    guessed: bool = False


@dataclass(frozen=True, kw_only=True)
class UpdatePiece:
    """One update with the optimizer's state present.

    Attributes:
        peak: Its peak, without any batch.
        state_bytes: The optimizer's state.
    """

    peak: Peak
    state_bytes: int


def worst(micro: MicroPiece, update: UpdatePiece) -> Peak:
    """The peak of the second update of a worst case: the larger of its last micro-step's and its optimizer step's.

    Exact, because what both leave alive only adds: the state lies beside the micro-step, the batch beside the update.
    """
    training = micro.peak.plus(OPTIMIZER_STATE, update.state_bytes)
    updating = update.peak.plus(ACTIVATIONS, micro.batch_bytes)
    return max(training, updating, key=lambda peak: peak.total_bytes)


def between(low: tuple[int, MicroPiece], high: tuple[int, MicroPiece], size: int) -> MicroPiece:
    """The piece at a size between two others on one straight line.

    The categories are of the upper piece, scaled so that they add up to the line.
    """
    (first, lower), (last, upper) = low, high
    share = (size - first) / (last - first)
    wanted = {
        name: round((1 - share) * lower.peak.categories.get(name, 0) + share * bytes_)
        for name, bytes_ in upper.peak.categories.items()
    }
    return MicroPiece(
        peak=Peak(categories=wanted, operator=upper.peak.operator),
        batch_bytes=round((1 - share) * lower.batch_bytes + share * upper.batch_bytes),
        guessed=lower.guessed or upper.guessed,
    )
