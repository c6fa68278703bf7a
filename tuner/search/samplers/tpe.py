"""Tree-structured Parzen estimator, multivariate, two objectives and one constraint (Optuna)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.search.samplers.proposer import OptunaProposer, Proposer, SearchTask

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

STARTUP_TRIALS = 6
"""Random trials before the first model: studies have 12 to 40 trials (Optuna's own default is 10)."""


def tpe_sampler(seed: int, _finished: int = 0) -> BaseSampler:
    """Optuna's sampler. ``multivariate`` has to be asked for with two objectives; running trials repel by default."""
    from optuna.samplers import TPESampler

    return TPESampler(seed=seed, multivariate=True, n_startup_trials=STARTUP_TRIALS)


def build(task: SearchTask) -> Proposer:
    """The proposer of ``sampler: tpe``."""
    return OptunaProposer(task=task, make_sampler=tpe_sampler)
