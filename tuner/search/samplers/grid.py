"""Every configuration once, in a seeded shuffled order, so that drift does not fall on one knob's values."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from objectives.config import TrainingConfig
from storage.records import TrialRecord
from tuner.search.samplers.proposer import Exhausted, Free, Proposer, SearchTask
from tuner.search.space import EXACT_SIZE


@dataclass(frozen=True, kw_only=True)
class GridProposer:
    """Walks the whole space; misfits are run like everything else, for complete tables.

    A space above :data:`~tuner.search.space.EXACT_SIZE` combinations is walked in the order of the spec.
    """

    task: SearchTask

    def propose(self, history: Sequence[TrialRecord], running: Sequence[TrialRecord]) -> TrainingConfig | Exhausted:
        """See :class:`~tuner.search.samplers.proposer.Proposer`."""
        free = Free(self.task, history, running)
        if self.task.space.combinations > EXACT_SIZE:
            return next(iter(free.configs()), None) or free.exhausted()
        return (
            next((config for key, config in self._shuffled if free.allows_key(key, config)), None) or free.exhausted()
        )

    @cached_property
    def _shuffled(self) -> Sequence[tuple[str, TrainingConfig]]:
        return sorted(self.task.space.keyed(), key=lambda each: self._position(each[0]))

    def _position(self, key: str) -> str:
        return hashlib.sha256(f"{self.task.seed} {key}".encode()).hexdigest()


def build(task: SearchTask) -> Proposer:
    """The proposer of ``sampler: grid``."""
    return GridProposer(task=replace(task, skip_misfits=False))
