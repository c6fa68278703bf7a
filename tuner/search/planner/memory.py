"""How likely each configuration fits, from predictions where there are some and from measured peaks where not. Pure.

Three sources, the surest first: what holds by construction (a larger micro-batch of a family that did not fit does not
fit either; see :mod:`tuner.search.memory_order`), corrected predictions with their bar
(:mod:`tuner.search.memory_model`), and else a model of the logarithm of the peak: a line in the micro-batch, effects of
the knobs, runs out of memory as lower bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.search.memory_model import Bars, MemoryModel, Observation
from tuner.search.memory_model import Points as Predictions
from tuner.search.memory_priors import PRIORS, Prior
from tuner.search.planner.candidates import Candidates, Codes, Encoded, Flags, Floats
from tuner.search.planner.edge import Edge, edge_after
from tuner.search.planner.observation import Seen
from tuner.search.planner.peaks import LearnedPeaks, fitted, unmeasured_misfit
from tuner.search.planner.priors import LOADER_KNOBS, MICRO_BATCH
from tuner.search.planner.structure import thinned

CONFIDENCE_Z = 1.96
"""Half-width of a 95 % bar in standard deviations."""
ROUGH_ERROR = 0.3
"""Stands for the error of a learned peak where the whole space is looked at."""
OUTSIDE_MIB, OUTSIDE_SPREAD_MIB = 600.0, 200.0
"""CUDA memory outside the allocator while no run says how much it is."""


class Memory:
    """Chances of fitting after some runs.

    Args:
        candidates: What may be tried.
        mine: Their codes.
        theirs: The runs' codes.
        seen: The runs.
        limit_bytes: What the peak may be at most; None: what fits is learned from the runs that did not.
        device_kind: ``cpu`` or ``cuda``.
        use_predictions: Whether the candidates' predicted peaks are looked at.
    """

    def __init__(
        self,
        candidates: Candidates,
        mine: Encoded,
        theirs: Encoded,
        seen: Sequence[Seen],
        *,
        limit_bytes: float | None,
        device_kind: str,
        use_predictions: bool = True,
    ) -> None:
        self.refused: Flags = dominated(mine, theirs, seen, limit_bytes)
        self.peaks: Floats = np.full(len(candidates), np.nan)
        self._chance = np.ones(len(candidates))
        self._bars: _Corrected | None = None
        self._learned: LearnedPeaks | None = None
        known = np.isfinite(candidates.predicted_peak_bytes)
        use_predictions = use_predictions and limit_bytes is not None
        self._is_known: Flags = known if use_predictions else np.zeros(len(candidates), dtype=np.bool_)
        if limit_bytes is None and not any(unmeasured_misfit(run) for run in seen):
            return
        if limit_bytes is not None and self._is_known.any():
            self._predict(_Corrected.of(candidates, np.flatnonzero(self._is_known), seen, limit_bytes, device_kind))
        if not self._is_known.all():
            self._learn(LearnedPeaks(mine, theirs, seen, limit_bytes), np.flatnonzero(~self._is_known))

    def chances(self) -> Floats:
        """Chance of fitting of every candidate, shape (candidates,); rough (see :meth:`refined`)."""
        made: Floats = np.where(self.refused, 0.0, self._chance)
        return made

    def refined(self, places: Codes) -> Floats:
        """The chances of some candidates, with the full uncertainty of peaks and of what really fits."""
        chances = self.chances()[places]
        if self._bars is not None:
            rows = np.flatnonzero(self._is_known[places] & ~self.refused[places])
            mine = self._bars.row_of[places[rows]]
            chances[rows] = self._bars.edge.chances(self._bars.mean_bytes[mine], self._bars.error_bytes[mine])
        if self._learned is not None:
            rows = np.flatnonzero(~self._is_known[places] & ~self.refused[places])
            chances[rows] = self._learned.edge.chances(*self._learned.peaks(places[rows]))
        return chances

    def _predict(self, bars: _Corrected) -> None:
        self._bars = bars
        self.peaks[bars.places] = bars.mean_bytes
        self._chance[bars.places] = bars.edge.rough_chances(bars.mean_bytes, bars.error_bytes)
        self.refused[bars.places] |= bars.certain_misfit

    def _learn(self, learned: LearnedPeaks, places: Codes) -> None:
        self._learned = learned
        expected = learned.expected_bytes[places]
        self.peaks[places] = expected
        self._chance[places] = learned.edge.rough_chances(expected, ROUGH_ERROR * expected)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Corrected:
    """Corrected predictions.

    Attributes:
        places: The candidates that have one.
        row_of: Row of each candidate in the arrays, shape (candidates,).
        mean_bytes: Shape (places,), as the following.
        error_bytes: Standard deviations.
        certain_misfit: Which need more than the limit beyond doubt.
        edge: What really fits.
    """

    places: Codes
    row_of: Codes
    mean_bytes: Floats
    error_bytes: Floats
    certain_misfit: Flags
    edge: Edge

    @classmethod
    def of(cls, candidates: Candidates, places: Codes, seen: Sequence[Seen], limit: float, kind: str) -> _Corrected:
        """Corrected by the measured peaks, and then by the runs out of memory that nobody expected."""
        points = _predictions(candidates, places)
        row_of = np.full(len(candidates), -1, dtype=np.intp)
        row_of[places] = np.arange(len(places))
        failed = [candidates.place(run.config) for run in seen if unmeasured_misfit(run)]
        rows = np.array([row_of[place] for place in failed if place is not None and row_of[place] >= 0], dtype=np.intp)
        bars = _memory_model(candidates, seen, kind).predict_many(points, int(limit))
        edge = edge_after(limit, bars.mean_bytes[rows], _errors(bars)[rows], fitted(seen, limit))
        told = _misfits_told(places[rows], bars.mean_bytes[rows], _errors(bars)[rows], edge.expected_bytes)
        if told:
            bars = _memory_model(candidates, seen, kind, told).predict_many(points, int(limit))
        return cls(
            places=places,
            row_of=row_of,
            mean_bytes=bars.mean_bytes,
            error_bytes=_errors(bars),
            certain_misfit=bars.certain_misfit,
            edge=edge,
        )


def _errors(bars: Bars) -> Floats:
    made: Floats = (bars.high_bytes - bars.mean_bytes) / CONFIDENCE_Z
    return made


def dominated(mine: Encoded, theirs: Encoded, seen: Sequence[Seen], limit_bytes: float | None) -> Flags:
    """Which candidates certainly need at least as much as one that did not fit, shape (candidates,)."""
    refused = np.zeros(len(mine.codes), dtype=np.bool_)
    rows = [row for row, run in enumerate(seen) if run.misfits(limit_bytes)]
    if not rows:
        return refused
    left_out = {MICRO_BATCH, *LOADER_KNOBS}
    families, sizes = mine.groups(left_out), mine.numbers(MICRO_BATCH)
    theirs_families, theirs_sizes = theirs.groups(left_out), theirs.numbers(MICRO_BATCH)
    smallest: dict[tuple[int, bool], float] = {}
    for row in rows:
        key = (int(theirs_families[row]), bool(theirs.accumulates[row]))
        smallest[key] = min(float(theirs_sizes[row]), smallest.get(key, np.inf))
    for (family, accumulates), size in smallest.items():
        more = mine.accumulates if accumulates else np.ones(len(refused), dtype=np.bool_)
        refused |= (families == family) & (sizes >= size) & more
    return refused


@dataclass(frozen=True)
class _Misfit:
    """A run out of memory as the measurement that stands for it."""

    place: int
    bytes: float


def _misfits_told(places: Codes, means: Floats, errors: Floats, edge: float) -> list[_Misfit]:
    """Runs out of memory that are expected to fit even so: told as needing a little more than there is."""
    return [
        _Misfit(int(place), max(edge, mean) + 0.5 * error)
        for place, mean, error in zip(places, means.tolist(), errors.tolist(), strict=True)
        if mean < edge + error
    ]


def _predictions(candidates: Candidates, places: Codes) -> Predictions:
    """The candidates' raw predictions ready for the memory model; made once for a space."""
    key = ("predictions", len(places), int(places[0]))
    made = candidates.cache.get(key)
    if not isinstance(made, Predictions):
        made = Predictions.of(
            [candidates.configs[place] for place in places],
            [round(float(candidates.predicted_peak_bytes[place])) for place in places],
            [bool(candidates.wide[place]) for place in places],
        )
        candidates.cache[key] = made
    return made


def _memory_model(candidates: Candidates, seen: Sequence[Seen], kind: str, told: Sequence[_Misfit] = ()) -> MemoryModel:
    runs = _told_peaks(candidates, seen)
    observed = [_observation(candidates, place, peak) for place, peak in runs]
    observed += [_observation(candidates, each.place, round(each.bytes)) for each in told]
    return MemoryModel(observed, _prior(kind), outside=False)


def _told_peaks(candidates: Candidates, seen: Sequence[Seen]) -> list[tuple[int, int]]:
    """Place and measured peak of the runs whose configuration has a prediction; of very many, the largest and a few."""
    pairs = [
        (place, run.peak_memory_bytes)
        for run in seen
        if run.peak_memory_bytes is not None
        and (place := candidates.place(run.config)) is not None
        and np.isfinite(candidates.predicted_peak_bytes[place])
    ]
    kept = thinned(np.arange(len(pairs)), np.array([float(peak) for _, peak in pairs]))
    return [pairs[row] for row in kept]


def _observation(candidates: Candidates, place: int, peak_bytes: int) -> Observation:
    return Observation(
        config=candidates.configs[place],
        predicted_bytes=round(float(candidates.predicted_peak_bytes[place])),
        measured_bytes=peak_bytes,
        wide=bool(candidates.wide[place]),
    )


def _prior(kind: str) -> Prior:
    """The device's prior; what CUDA holds outside the allocator is part of the study's own offset here."""
    prior = PRIORS.get(kind, PRIORS["cpu"])
    if kind != "cuda":
        return prior
    study = replace(prior.levels[0], offset_mib=float(np.hypot(prior.levels[0].offset_mib, OUTSIDE_SPREAD_MIB)))
    return replace(prior, offset_mib=prior.offset_mib + OUTSIDE_MIB, levels=(study, *prior.levels[1:]))
