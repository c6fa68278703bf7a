"""How the search goes: the command line, the Python door (``tuner.run(spec)``), the search and the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.api import Result as Result
    from tuner.api import run as run
    from tuner.function.tuning import tune as tune
    from tuner.lookup import best_config as best_config
    from tuner.reporting import report_step as report_step
    from tuner.search.samplers.optuna_sampler import TightfitSampler as TightfitSampler

__all__ = ["Result", "TightfitSampler", "best_config", "report_step", "run", "tune"]

_DOORS = {
    "Result": "tuner.api",
    "TightfitSampler": "tuner.search.samplers.optuna_sampler",  # for anybody's Optuna study: it loads Optuna
    "best_config": "tuner.lookup",  # called at the start of training jobs
    "report_step": "tuner.reporting",  # called inside training scripts: it loads nothing else
    "run": "tuner.api",
    "tune": "tuner.function.tuning",
}


def __getattr__(name: str) -> Any:
    """Loads the door when somebody comes through it: the command line's help must not wait for it."""
    if name not in _DOORS:
        raise AttributeError(f"module 'tuner' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_DOORS[name]), name)
