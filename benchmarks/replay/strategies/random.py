"""Uniformly random, each configuration once.

Source: Optuna 5.0, ``optuna.samplers.RandomSampler``; PEERS.md, B13.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


def make(seed: int) -> BaseSampler:
    """Optuna's sampler."""
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)
