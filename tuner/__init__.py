"""How the search goes: the command line, the Python door (``tuner.run(spec)``), the search and the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.api import Result as Result
    from tuner.api import run as run
    from tuner.lookup import best_config as best_config
    from tuner.reporting import report_step as report_step
    from tuner.search.samplers.optuna_sampler import TightfitSampler as TightfitSampler

__all__ = ["Result", "TightfitSampler", "best_config", "report_step", "run"]


def __getattr__(name: str) -> Any:
    """Loads the door when somebody comes through it: the command line's help must not wait for it."""
    if name == "report_step":  # called inside training scripts: it loads nothing else
        from tuner import reporting

        return reporting.report_step
    if name == "TightfitSampler":  # a sampler for anybody's Optuna study: it loads Optuna
        from tuner.search.samplers import optuna_sampler

        return optuna_sampler.TightfitSampler
    if name == "best_config":  # called at the start of training jobs
        from tuner import lookup

        return lookup.best_config
    if name in __all__:
        from tuner import api

        return getattr(api, name)
    raise AttributeError(f"module 'tuner' has no attribute {name!r}")
