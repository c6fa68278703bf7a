"""The genetic algorithm NSGA-II with constrained domination, eight trials a generation (its default, 50, is a table).

Source: Optuna 5.0, ``optuna.samplers.NSGAIISampler``; PEERS.md, B13.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


def make(seed: int) -> BaseSampler:
    """Optuna's sampler."""
    from optuna.samplers import NSGAIISampler

    return NSGAIISampler(seed=seed, population_size=8)
