"""The micro-batch: how many samples go through the model at once on one device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from objectives.knobs.knob import Knob

if TYPE_CHECKING:
    from objectives.trial.setup import Setup


def _read_back(setup: Setup) -> int | None:
    """Samples in the loader's own first index list; None before the loader is made."""
    if setup.loader is None:
        return None
    sampler = setup.loader.batch_sampler
    return setup.loader.batch_size if sampler is None else len(next(iter(sampler)))


MICRO_BATCH_SIZE = Knob(
    name="micro_batch_size",
    kind="integer",
    summary="Samples per device and forward pass. Larger fills the device better and keeps more activations.",
    default=1,
    low=1,
    read_back=_read_back,
)
