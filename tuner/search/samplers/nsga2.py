"""The genetic algorithm NSGA-II with constrained domination (Optuna)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.search.samplers.proposer import OptunaProposer, Proposer, SearchTask

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

POPULATION = 8
"""Trials of a generation. Optuna's default of 50 would never leave the first generation in a study of 40 trials."""


def nsga2_sampler(seed: int, _finished: int = 0) -> BaseSampler:
    """Optuna's sampler with a population that fits our studies."""
    from optuna.samplers import NSGAIISampler

    return NSGAIISampler(seed=seed, population_size=POPULATION)


def generation_of(number: int) -> dict[str, Any]:
    """Optuna's own note on which generation the rebuilt trial belongs to: the n-th eight trials are generation n."""
    from optuna.samplers import NSGAIISampler

    return {NSGAIISampler._get_generation_key(): number // POPULATION}


def build(task: SearchTask) -> Proposer:
    """The proposer of ``sampler: nsga2``."""
    return OptunaProposer(task=task, make_sampler=nsga2_sampler, trial_attributes=generation_of)
