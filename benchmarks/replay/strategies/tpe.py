"""Tree-structured Parzen estimator, multivariate, six random trials before its first model (tables are small).

Source: Optuna 5.0, ``optuna.samplers.TPESampler``; PEERS.md, B13. Told FAIL, it ignores failures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


def make(seed: int) -> BaseSampler:
    """Optuna's sampler. ``multivariate`` has to be asked for with two objectives."""
    from optuna.samplers import TPESampler

    return TPESampler(seed=seed, multivariate=True, n_startup_trials=6)
