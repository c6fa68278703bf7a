"""Uniformly random configurations, each at most once, certain misfits left out (Optuna)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.search.samplers.proposer import OptunaProposer, Proposer, SearchTask

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


def random_sampler(seed: int, _finished: int = 0) -> BaseSampler:
    """Optuna's sampler."""
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


def build(task: SearchTask) -> Proposer:
    """The proposer of ``sampler: random``."""
    return OptunaProposer(task=task, make_sampler=random_sampler)
