"""Gaussian process: expected (hypervolume) improvement under a constraint, six random trials before its first model.

Source: Optuna 5.0, ``optuna.samplers.GPSampler`` (the installed source); PEERS.md, B13. Nothing of it is capped or
replaced: it is slow (seconds a search), so it gets fewer seeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


def make(seed: int) -> BaseSampler:
    """Optuna's sampler."""
    from optuna.samplers import GPSampler

    return GPSampler(seed=seed, n_startup_trials=6)
