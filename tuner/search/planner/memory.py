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

from tuner.search.memory_model import PRIORS, Bars, MemoryModel, Observation, Prior
from tuner.search.memory_model import Points as Predictions
from tuner.search.planner.candidates import Candidates, Codes, Encoded, Flags, Floats
from tuner.search.planner.observation import Seen
from tuner.search.planner.peaks import LearnedPeaks, normal_cdf
from tuner.search.planner.priors import LOADER_KNOBS, MICRO_BATCH

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
        limit_bytes: What the peak may be at most; None: everything fits.
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
        self._limit = limit_bytes
        self.refused: Flags = dominated(mine, theirs, seen, limit_bytes)
        self._chance = np.ones(len(candidates))
        self.peaks: Floats = np.full(len(candidates), np.nan)
        self._learned: LearnedPeaks | None = None
        known = np.isfinite(candidates.predicted_peak_bytes) if use_predictions else np.zeros(len(mine.codes), bool)
        if limit_bytes is not None and known.any():
            self._predict(candidates, np.flatnonzero(known), seen, device_kind)
        if limit_bytes is not None and not known.all():
            self._learn(candidates, mine, theirs, seen, np.flatnonzero(~known))

    def chances(self) -> Floats:
        """Chance of fitting of every candidate, shape (candidates,); learned ones rough (see :meth:`refined`)."""
        made: Floats = np.where(self.refused, 0.0, self._chance)
        return made

    def refined(self, places: Codes) -> Floats:
        """The chances of some candidates, with the full uncertainty of what was learned."""
        chances = self.chances()[places]
        if self._learned is None:
            return chances
        rough = np.flatnonzero(self._learned.rough[places] & ~self.refused[places])
        if len(rough):
            chances[rough] = self._learned.chances(places[rough])
        return chances

    def _predict(self, candidates: Candidates, places: Codes, seen: Sequence[Seen], kind: str) -> None:
        points = _predictions(candidates, places)
        model = _memory_model(candidates, seen, kind)
        bars = model.predict_many(points, None if self._limit is None else int(self._limit))
        told = _misfits_told(candidates, seen, places, bars, self._limit or np.inf)
        if told:
            model = _memory_model(candidates, seen, kind, told)
            bars = model.predict_many(points, None if self._limit is None else int(self._limit))
        deviation = (bars.high_bytes - bars.mean_bytes) / CONFIDENCE_Z
        self.peaks[places] = bars.mean_bytes
        self._chance[places] = normal_cdf(((self._limit or np.inf) - bars.mean_bytes) / np.maximum(deviation, 1.0))
        self.refused[places] |= bars.certain_misfit

    def _learn(
        self, candidates: Candidates, mine: Encoded, theirs: Encoded, seen: Sequence[Seen], places: Codes
    ) -> None:
        learned = LearnedPeaks(mine, theirs, seen, self._limit or 1.0)
        learned.rough[places] = True
        self._learned = learned
        self.peaks[places] = np.exp(learned.expected[places])
        self._chance[places] = normal_cdf((learned.edge - learned.expected[places]) / ROUGH_ERROR)


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


def _misfits_told(
    candidates: Candidates, seen: Sequence[Seen], places: Codes, bars: Bars, limit: float
) -> list[_Misfit]:
    """Runs out of memory that the model did not expect: told as needing a little more than there was."""
    row_of = {int(place): row for row, place in enumerate(places)}
    told = []
    for run in seen:
        place = candidates.place(run.config) if run.outcome == "device_oom" and run.certain else None
        if place is None or place not in row_of or run.peak_memory_bytes is not None:
            continue
        mean = float(bars.mean_bytes[row_of[place]])
        deviation = (float(bars.high_bytes[row_of[place]]) - mean) / CONFIDENCE_Z
        if mean < limit + deviation:
            told.append(_Misfit(place, max(limit, mean) + 0.5 * deviation))
    return told


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
    observed = [
        Observation(
            config=run.config,
            predicted_bytes=round(float(candidates.predicted_peak_bytes[place])),
            measured_bytes=run.peak_memory_bytes,
            wide=bool(candidates.wide[place]),
        )
        for run in seen
        if run.peak_memory_bytes is not None
        and (place := candidates.place(run.config)) is not None
        and np.isfinite(candidates.predicted_peak_bytes[place])
    ]
    observed += [
        Observation(
            config=candidates.configs[each.place],
            predicted_bytes=round(float(candidates.predicted_peak_bytes[each.place])),
            measured_bytes=round(each.bytes),
            wide=bool(candidates.wide[each.place]),
        )
        for each in told
    ]
    return MemoryModel(observed, _prior(kind), outside=False)


def _prior(kind: str) -> Prior:
    """The device's prior; what CUDA holds outside the allocator is part of the study's own offset here."""
    prior = PRIORS.get(kind, PRIORS["cpu"])
    if kind != "cuda":
        return prior
    study = replace(prior.levels[0], offset_mib=float(np.hypot(prior.levels[0].offset_mib, OUTSIDE_SPREAD_MIB)))
    return replace(prior, offset_mib=prior.offset_mib + OUTSIDE_MIB, levels=(study, *prior.levels[1:]))
