"""Which samples make which micro-batch, and the loader that serves them: the same samples, in order, in every run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, Sampler

from objectives.data.batching import plan
from objectives.measure.memory import lift_data_limit

if TYPE_CHECKING:
    from objectives.trial.setup import Setup


class PlannedBatches(Sampler[list[int]]):
    """Micro-batches of sample indices, without end.

    The global batch ``k`` holds the same samples in every configuration. Where a measured block has fewer micro-steps
    than the accumulation, the ones taken are spread evenly over the global batch, mirrored in every second one, so
    that a length-grouped batch shows its short and its long end alike.
    """

    def __init__(
        self,
        *,
        samples: int,
        lengths: Sequence[int] | None,
        micro_batch_size: int,
        accumulation_steps: int,
        batching: str,
        steps_in_block: int,
    ) -> None:
        self._plan = partial(
            plan,
            samples=samples,
            lengths=lengths,
            micro_batch_size=micro_batch_size,
            accumulation_steps=accumulation_steps,
            batching=batching,
        )
        self._chosen = spread(accumulation_steps, steps_in_block)
        self._mirrored = tuple(accumulation_steps - 1 - index for index in reversed(self._chosen))

    def __iter__(self) -> Iterator[list[int]]:
        for micro_batches, chosen in zip(self._plan(), cycle((self._chosen, self._mirrored)), strict=False):
            for index in chosen:
                yield list(micro_batches[index])


def spread(total: int, wanted: int) -> tuple[int, ...]:
    """``wanted`` indices out of ``total``, evenly apart, ascending; the middle of each of ``wanted`` equal parts."""
    wanted = min(total, wanted)
    return tuple((2 * part + 1) * total // (2 * wanted) for part in range(wanted))


def make_loader(setup: Setup, *, steps_in_block: int) -> DataLoader[Any]:
    """The data loader of this configuration, from the options its knobs collected. Keeps it on the setup as well."""
    workload, config = setup.workload, setup.config
    dataset = workload.dataset()
    lengths = workload.lengths() if hasattr(workload, "lengths") else None
    batches = PlannedBatches(
        samples=len(dataset),
        lengths=lengths,
        micro_batch_size=config.micro_batch_size,
        accumulation_steps=config.accumulation_steps,
        batching=config.batching,
        steps_in_block=steps_in_block,
    )
    setup.loader = DataLoader(
        dataset,
        batch_sampler=batches,
        collate_fn=workload.collate,
        worker_init_fn=_start_worker if config.loader_workers else None,
        **setup.loader_options,
    )
    return setup.loader


def _start_worker(_worker: int) -> None:
    lift_data_limit()  # the cap is the child's alone: a loader worker inherits it and must not run into it
