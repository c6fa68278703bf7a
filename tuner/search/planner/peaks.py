"""Peaks learned from runs alone, for spaces without predictions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tuner.search.planner.candidates import Codes, Encoded, Floats
from tuner.search.planner.effects import Beliefs, Points, Posterior, Structure, learn
from tuner.search.planner.observation import Seen
from tuner.search.planner.priors import LOADER_KNOBS, PEAK, PEAK_FIXED_SAMPLES, PEAK_UNKNOWN, KnobPrior

PEAK_ERROR = 0.02
"""Relative error of a peak beside what the effects explain: allocators round."""
SURPRISE = 3.0
"""A misfit expected so many deviations below the limit says that less than the limit really fits."""


class LearnedPeaks:
    """Logarithms of peaks as measured runs and misfits teach them.

    Attributes:
        expected: Of every candidate, shape (candidates,).
        edge: Logarithm of what really fits: the limit, or less where runs failed far below it.
        rough: Candidates whose chance is this model's, shape (candidates,).
    """

    def __init__(self, mine: Encoded, theirs: Encoded, seen: Sequence[Seen], limit_bytes: float) -> None:
        measured = np.array([row for row, run in enumerate(seen) if run.peak_memory_bytes], dtype=np.intp)
        failed = np.array([row for row, run in enumerate(seen) if _unmeasured_misfit(run)], dtype=np.intp)
        peaks = np.log([float(seen[row].peak_memory_bytes or 1) for row in measured])
        self._level = float(np.median(peaks)) if len(measured) else float(np.log(limit_bytes / 2))
        structure = Structure(mine, _peak_beliefs())
        self._points = structure.points(mine, np.arange(len(mine.codes)))
        points = structure.points(theirs, -1 - np.arange(len(seen)))
        noise = np.full(len(measured), PEAK_ERROR**2)
        posterior = learn(structure, points.at(measured), peaks - self._level, noise)
        fitting = [np.log(float(run.peak_memory_bytes or 1)) for run in seen if run.fits(limit_bytes)]
        self.edge, self._edge_error = self._edge(
            posterior, points.at(failed), np.log(limit_bytes), max(fitting, default=None)
        )
        bounds = np.full(len(failed), self.edge - self._level)
        self._posterior = posterior.bounded(points.at(failed), bounds, upper=False, spread=PEAK_ERROR)
        self.expected: Floats = self._posterior.means(self._points) + self._level
        self.rough = np.zeros(len(mine.codes), dtype=np.bool_)

    def chances(self, places: Codes) -> Floats:
        """Chance that these candidates fit."""
        mean, variance = self._posterior.marginals(self._points.at(places))
        deviation = np.sqrt(variance + PEAK_ERROR**2 + self._edge_error**2)
        return normal_cdf((self.edge - self._level - mean) / deviation)

    def _edge(self, posterior: Posterior, failed: Points, limit: float, fitted: float | None) -> tuple[float, float]:
        """What really fits, and its error: from the largest peak that did to the least that surprisingly did not."""
        if not len(failed):
            return limit, 0.0
        mean, variance = posterior.marginals(failed)
        surprising = mean + self._level + SURPRISE * np.sqrt(variance + PEAK_ERROR**2) < limit
        if not surprising.any():
            return limit, 0.0
        high = float((mean[surprising] + self._level).min())
        low = min(high - PEAK_ERROR, high - 1.0 if fitted is None else fitted)
        return (low + high) / 2, (high - low) / 3


def _unmeasured_misfit(run: Seen) -> bool:
    return run.outcome == "device_oom" and run.certain and not run.peak_memory_bytes


def _peak_beliefs() -> Beliefs:
    """Loader knobs hold nothing on the device."""
    nothing = KnobPrior(spread=0.001, couples=0.001)
    knobs: Mapping[str, KnobPrior] = {**PEAK, **dict.fromkeys(LOADER_KNOBS, nothing)}
    return Beliefs(
        knobs=knobs,
        unknown=PEAK_UNKNOWN,
        micro_mean=lambda sizes: np.log(PEAK_FIXED_SAMPLES + sizes),
        micro_bend=lambda sizes: np.log(sizes) / np.log(64.0),
        micro_spread=0.6,
        level_spread=0.6,
        noise=PEAK_ERROR,
    )


def normal_cdf(z: Floats) -> Floats:
    """Chance that a standard normal number lies below, elementwise."""
    from scipy.special import ndtr

    made: Floats = ndtr(z)
    return made
