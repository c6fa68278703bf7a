"""Gaussian process: expected (hypervolume) improvement under a constraint, six random trials before its first model.

Source: Optuna 5.0, ``optuna.samplers.GPSampler`` (the installed source); PEERS.md, B13. A proposal takes 0.1 to 0.6 s,
so it gets fewer seeds; the first proposal that has run already gives way to the untried row nearest to it (late in a
search it proposes little else); and after 40 runs, where a study ends, what is left is drawn at random.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


PATIENCE, MODELS = 1, 40
"""See :class:`~benchmarks.replay.strategies.sampler_loop.SamplerLoop`."""


def make(seed: int) -> BaseSampler:
    """Optuna's sampler."""
    from optuna.samplers import GPSampler

    return GPSampler(seed=seed, n_startup_trials=6)
