"""One number a strategy: the geometric mean over grids of the median seconds to within 1 %, with its interval. Pure.

Cuts of one grid are averaged first (geometrically): a grid cut three times counts once. The interval is a bootstrap
over grids and, within each table, over seeds; strategies share the drawn grids, so their ratio has an interval too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DRAWS = 1_000
CONFIDENCE = 0.95

Floats = NDArray[np.float64]
Values = Mapping[str, Sequence[float]]
"""Seconds of every seed, by table."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """A strategy's score.

    Attributes:
        seconds: The score.
        interval: Its 95 % bootstrap interval.
        draws: The bootstrap's scores, shape (draws,): comparable between strategies, draw by draw.
    """

    seconds: float
    interval: tuple[float, float]
    draws: Floats


def score(values: Values, grids: Mapping[str, str], *, draws: int = DRAWS) -> Score:
    """The score of one strategy.

    Args:
        values: Seconds of every seed, by table; above 0.
        grids: Grid by table.
        draws: Resamples of the bootstrap.
    """
    names = sorted(set(grids.values()))
    plain = {grid: [np.log(np.median(values[table])) for table in values if grids[table] == grid] for grid in names}
    by_grid = np.array([np.mean(plain[grid]) for grid in names])
    resampled = np.stack([_of_grid(values, grids, grid, draws) for grid in names], axis=1)
    chosen = np.random.default_rng(0).integers(len(names), size=(draws, len(names)))
    drawn: Floats = np.exp(np.take_along_axis(resampled, chosen, axis=1).mean(axis=1))
    return Score(seconds=float(np.exp(by_grid.mean())), interval=interval(drawn), draws=drawn)


def interval(drawn: Floats) -> tuple[float, float]:
    """The middle 95 % of the bootstrap's draws."""
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _of_grid(values: Values, grids: Mapping[str, str], grid: str, draws: int) -> Floats:
    """Log of the grid's seconds with resampled seeds, shape (draws,)."""
    cuts = [_medians(values[table], draws, seed) for seed, table in enumerate(sorted(grids)) if grids[table] == grid]
    mean: Floats = np.mean(cuts, axis=0)
    return mean


def _medians(seconds: Sequence[float], draws: int, seed: int) -> Floats:
    chosen = np.random.default_rng(1 + seed).integers(len(seconds), size=(draws, len(seconds)))
    medians: Floats = np.log(np.median(np.asarray(seconds)[chosen], axis=1))
    return medians
