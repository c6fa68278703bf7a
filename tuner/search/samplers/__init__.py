"""The samplers by name. One file each; a new one is listed here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tuner.search.samplers import auto, gp, grid, nsga2, random, tpe
from tuner.search.samplers.proposer import Exhausted, Proposer, SearchTask

__all__ = ["SAMPLERS", "Exhausted", "Proposer", "Sampler", "SearchTask", "make_proposer"]


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """One choice of the spec's ``sampler``."""

    name: str
    summary: str
    build: Callable[[SearchTask], Proposer]


SAMPLERS: tuple[Sampler, ...] = (
    Sampler(name="auto", summary="knows the physics of training; few trials, and ends by itself", build=auto.build),
    Sampler(name="tpe", summary="tree-structured Parzen estimator, multivariate", build=tpe.build),
    Sampler(name="gp", summary="Gaussian process; best with few trials, slow above 300", build=gp.build),
    Sampler(name="nsga2", summary="genetic algorithm; for hundreds of trials", build=nsga2.build),
    Sampler(name="random", summary="uniformly random, each configuration at most once", build=random.build),
    Sampler(name="grid", summary="every configuration once, misfits too, in shuffled order", build=grid.build),
)


def make_proposer(name: str, task: SearchTask) -> Proposer:
    """The proposer a spec names.

    Raises:
        ValueError: No sampler has that name; the message lists those that exist.
    """
    for each in SAMPLERS:
        if each.name == name:
            return each.build(task)
    raise ValueError(f"unknown sampler {name!r}: use one of {', '.join(each.name for each in SAMPLERS)}")
