"""Peaks learned from runs alone, for spaces without predictions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tuner.search.planner.candidates import Codes, Encoded, Floats
from tuner.search.planner.edge import edge_after
from tuner.search.planner.effects import learn
from tuner.search.planner.observation import MEASURED, Seen
from tuner.search.planner.priors import LOADER_KNOBS, PEAK, PEAK_FIXED_SAMPLES, PEAK_UNKNOWN, KnobPrior
from tuner.search.planner.structure import Beliefs, Points, Structure, thinned

PEAK_ERROR = 0.02
"""Relative error of a peak beside what the effects explain: allocators round."""

ABOVE_MEASURED = 4.0
"""Without a limit, it lies at most so far above the largest measured peak."""


class LearnedPeaks:
    """Peaks as measured runs and misfits teach them: a model of their logarithm.

    Attributes:
        edge: What really fits.
        expected_bytes: Of every candidate, shape (candidates,).
    """

    def __init__(self, mine: Encoded, theirs: Encoded, seen: Sequence[Seen], limit_bytes: float | None) -> None:
        limit = _most(seen) if limit_bytes is None else limit_bytes
        stated = limit_bytes is not None or not any(run.peak_memory_bytes for run in seen)
        measured = np.array([row for row, run in enumerate(seen) if run.peak_memory_bytes], dtype=np.intp)
        failed = np.array([row for row, run in enumerate(seen) if unmeasured_misfit(run)], dtype=np.intp)
        measured = thinned(measured, -np.abs([np.log((seen[row].peak_memory_bytes or 1) / limit) for row in measured]))
        peaks = np.log([float(seen[row].peak_memory_bytes or 1) for row in measured])
        self._level = float(np.median(peaks)) if len(measured) else float(np.log(limit / 2))
        structure = Structure(mine, _peak_beliefs())
        self._points = structure.points(mine, np.arange(len(mine.codes)))
        points = structure.points(theirs, -1 - np.arange(len(seen)))
        noise = np.full(len(measured), PEAK_ERROR**2)
        self._posterior = learn(structure, points.at(measured), peaks - self._level, noise)
        self.edge = edge_after(limit, *self._bytes(points.at(failed)), fitted(seen, limit), stated=stated)
        bounds = np.full(len(failed), np.log(self.edge.expected_bytes) - self._level)
        self._posterior = self._posterior.bounded(points.at(failed), bounds, upper=False, spread=PEAK_ERROR)
        unknown = np.array([row for row, run in enumerate(seen) if _fitted_unmeasured(run)], dtype=np.intp)
        bounds = np.full(len(unknown), np.log(self.edge.expected_bytes) - self._level)
        self._posterior = self._posterior.bounded(points.at(unknown), bounds, upper=True, spread=PEAK_ERROR)
        self.expected_bytes: Floats = np.exp(self._posterior.means(self._points) + self._level)

    def peaks(self, places: Codes) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the peaks of some candidates, in bytes."""
        return self._bytes(self._points.at(places))

    def _bytes(self, points: Points) -> tuple[Floats, Floats]:
        mean, variance = self._posterior.marginals(points)
        peak = np.exp(mean + self._level)
        return peak, peak * np.sqrt(variance + PEAK_ERROR**2)


def _most(seen: Sequence[Seen]) -> float:
    """Without a limit: the most that may be possible; 1 where no peak was measured: then peaks are shares of it."""
    return ABOVE_MEASURED * max((float(run.peak_memory_bytes) for run in seen if run.peak_memory_bytes), default=0.25)


def _fitted_unmeasured(run: Seen) -> bool:
    return run.outcome in MEASURED and not run.peak_memory_bytes


def fitted(seen: Sequence[Seen], limit_bytes: float) -> list[float]:
    """Measured peaks of what fitted."""
    return [float(run.peak_memory_bytes) for run in seen if run.peak_memory_bytes and run.fits(limit_bytes)]


def unmeasured_misfit(run: Seen) -> bool:
    """Whether it ran out of memory for certain, without a peak."""
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
