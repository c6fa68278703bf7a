"""Predicted peaks corrected by the study's own runs, with an honest error bar. Pure.

What fakes cannot know (kernels' scratch space, packed weights, an allocator's rounding) is nearly a constant of family
and precision. So, in MiB, for a predicted peak p::

    measured = p + sum over levels of (offset + slope * p) + noise

The levels are study, precision, family and kind of uncertainty (compiled, substituted),
with a normal prior for every offset and slope and one common scale for all of them that the residuals set
(normal-inverse-gamma; Gelman et al., Bayesian Data Analysis, chapter 14): before any run the bar is the stated prior's,
a study whose predictions are good narrows it everywhere, one whose predictions are bad widens it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from objectives.config import KnobValue, TrainingConfig
from storage.records import TrialRecord
from tuner.search.memory_order import family_of
from tuner.search.memory_priors import PRIORS, Prior

MIB = 2.0**20
CONFIDENCE = 0.95
CERTAIN_CONFIDENCE = 0.99
"""A misfit is certain when even the lower end of this interval is over the limit: it will never be tried."""
PRIOR_FREEDOM = 5.0
"""The prior weighs as much as so many degrees of freedom."""
OUTSIDE_PRIOR_BYTES, OUTSIDE_SPREAD_BYTES = 600 * 2**20, 200 * 2**20
"""CUDA memory outside the allocator (context, modules, cuBLAS, cuDNN) before the first run has shown it."""

Floats = NDArray[np.float64]
Key = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One measured run beside its prediction.

    Attributes:
        config: What ran.
        predicted_bytes: The raw prediction.
        measured_bytes: ``peak_memory_bytes`` of the run.
        outside_bytes: CUDA: the part of it outside the allocator; None on a CPU or when not known.
        wide: Whether the prediction called itself uncertain.
    """

    config: TrainingConfig | Mapping[str, KnobValue]
    predicted_bytes: int
    measured_bytes: int
    outside_bytes: int | None = None
    wide: bool = False


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """A corrected prediction against a limit.

    Attributes:
        mean_bytes: The best guess.
        low_bytes: Lower end of the 95 % bar.
        high_bytes: Its upper end.
        certain_misfit: Whether it needs more than the limit, with 99.5 % certainty (one-sided).
        doubtful: Whether it may fit or not: no certain misfit, but the bar reaches over the limit.
    """

    mean_bytes: int
    low_bytes: int
    high_bytes: int
    certain_misfit: bool = False
    doubtful: bool = False


LEVELS = 4


def keys_of(config: TrainingConfig | Mapping[str, KnobValue], *, wide: bool = False) -> tuple[Key, Key, Key, Key]:
    """The levels a configuration belongs to: study, precision, family, and its kind of uncertainty (or ())."""
    values = config if isinstance(config, Mapping) else config.knobs()
    compiled = values.get("compile", "off")
    kind = ("wide", compiled, values.get("attention")) if wide or compiled != "off" else ()
    return ("study",), ("precision", values.get("precision")), ("family", *family_of(values)), kind


@dataclass(frozen=True, kw_only=True)
class Points:
    """Configurations made ready for :meth:`MemoryModel.predict_many`, once for a study.

    Attributes:
        keys: Every level that occurs; the first stands for "none of this kind".
        codes: Which of them each point belongs to, shape (points, levels).
        predicted_mib: Raw predictions, shape (points,), in MiB.
    """

    keys: tuple[Key, ...]
    codes: NDArray[np.intp]
    predicted_mib: Floats

    @cached_property
    def groups(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """One point of each combination of levels, and which combination every point has."""
        _, first, member = np.unique(self.codes, axis=0, return_index=True, return_inverse=True)
        return first.astype(np.intp), member.reshape(-1).astype(np.intp)

    @classmethod
    def of(
        cls,
        configs: Sequence[TrainingConfig | Mapping[str, KnobValue]],
        predicted_bytes: Sequence[int],
        wide: Sequence[bool] | None = None,
    ) -> Points:
        """Points for configurations with their raw predictions."""
        flags = [False] * len(configs) if wide is None else wide
        known: dict[Key, int] = {(): 0}
        codes = [
            [known.setdefault(key, len(known)) for key in keys_of(config, wide=flag)]
            for config, flag in zip(configs, flags, strict=True)
        ]
        return cls(
            keys=tuple(known),
            codes=np.array(codes, dtype=np.intp).reshape(len(codes), LEVELS),
            predicted_mib=np.asarray(predicted_bytes, dtype=float) / MIB,
        )


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Corrected predictions of many points: :class:`Predicted` in arrays of shape (points,), in bytes."""

    mean_bytes: Floats
    low_bytes: Floats
    high_bytes: Floats
    certain_misfit: NDArray[np.bool_]
    doubtful: NDArray[np.bool_]

    def at(self, index: int) -> Predicted:
        """One of them."""
        return Predicted(
            mean_bytes=round(self.mean_bytes[index]),
            low_bytes=round(self.low_bytes[index]),
            high_bytes=round(self.high_bytes[index]),
            certain_misfit=bool(self.certain_misfit[index]),
            doubtful=bool(self.doubtful[index]),
        )


class MemoryModel:
    """What a study's runs have taught about its predictions. Made by :func:`learn`; never changes."""

    def __init__(self, observations: Sequence[Observation], prior: Prior, *, outside: bool) -> None:
        self._prior = prior
        self._outside_mib, self._outside_spread_mib = _outside(observations) if outside else (0.0, 0.0)
        points = Points.of(
            [each.config for each in observations],
            [each.predicted_bytes for each in observations],
            [each.wide for each in observations],
        )
        self._columns = {key: number for number, key in enumerate(points.keys[1:])}
        self.observations = len(observations)
        self._fit(points, self._residuals(observations, points))

    def _residuals(self, observations: Sequence[Observation], points: Points) -> Floats:
        """Measured minus what the prior's means make of the prediction, MiB."""
        inside = [each.measured_bytes - (each.outside_bytes or 0) for each in observations]
        known = np.array([self._outside_mib if each.outside_bytes is None else 0.0 for each in observations])
        residuals: Floats = np.asarray(inside, dtype=float) / MIB - known - self._before(points.predicted_mib)
        return residuals

    def _before(self, predicted_mib: Floats) -> Floats:
        return predicted_mib * (1 + self._prior.slope) + self._prior.offset_mib

    def _fit(self, points: Points, residuals: Floats) -> None:
        design = np.zeros((len(residuals), 2 * len(self._columns) + 2))
        spread = np.ones(2 * len(self._columns) + 2)
        rows = np.arange(len(residuals))
        for places, level in zip(self._places(points).T, self._prior.levels, strict=True):
            design[rows, 2 * places], design[rows, 2 * places + 1] = 1.0, points.predicted_mib
            spread[2 * places], spread[2 * places + 1] = level.offset_mib, level.slope
        design, spread = design[:, :-2], spread[:-2]  # the last two stood for "none of this kind"
        weight = 1 / self._noise(points.predicted_mib)
        precision = np.diag(1 / spread**2) + (design * weight[:, None]).T @ design
        self._covariance = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        pull = design.T @ (weight * residuals)
        self._weights: Floats = self._covariance @ pull
        surprise = float(residuals @ (weight * residuals) - pull @ self._weights)
        self._freedom = PRIOR_FREEDOM + len(residuals)
        self._scale = (PRIOR_FREEDOM + max(surprise, 0.0)) / self._freedom

    def _places(self, points: Points) -> NDArray[np.intp]:
        """Which of the model's levels each point belongs to, shape (points, levels); one past the last: none yet."""
        missing = len(self._columns)
        columns = np.array([self._columns.get(key, missing) for key in points.keys], dtype=np.intp)
        places: NDArray[np.intp] = columns[points.codes]
        return places

    def _noise(self, predicted_mib: Floats) -> Floats:
        return self._prior.noise_mib**2 + (self._prior.noise_share * predicted_mib) ** 2

    def predict(
        self, config: TrainingConfig, predicted_bytes: int, *, limit_bytes: int | None, wide: bool = False
    ) -> Predicted:
        """One configuration's corrected peak.

        Args:
            config: The configuration.
            predicted_bytes: Its raw prediction.
            limit_bytes: What it may need at most; None: everything fits.
            wide: Whether the prediction called itself uncertain. Compiled configurations always are.
        """
        return self.predict_many(Points.of([config], [predicted_bytes], [wide]), limit_bytes).at(0)

    def predict_many(self, points: Points, limit_bytes: int | None) -> Bars:
        """All points at once: 20,000 in some tens of milliseconds."""
        added, variance = self._correction(points)
        mean = self._before(points.predicted_mib) + added + self._outside_mib
        error = np.sqrt(self._scale * (variance + self._noise(points.predicted_mib)) + self._outside_spread_mib**2)
        half, sure = (_t_quantile(self._freedom, level) * error for level in (CONFIDENCE, CERTAIN_CONFIDENCE))
        limit = np.inf if limit_bytes is None else limit_bytes / MIB
        certain = mean - sure > limit
        return Bars(
            mean_bytes=mean * MIB,
            low_bytes=np.maximum(mean - half, 0) * MIB,
            high_bytes=(mean + half) * MIB,
            certain_misfit=certain,
            doubtful=~certain & (mean + half > limit),
        )

    def _correction(self, points: Points) -> tuple[Floats, Floats]:
        """What the levels add to each point, and its variance (without noise and scale), shape (points,) each.

        Points of the same levels share their weights, so that both are polynomials of the predicted peak.
        """
        predicted, missing = points.predicted_mib, len(self._columns)
        groups, member = points.groups
        places = self._places(points)
        mine = places[groups]
        weights = np.concatenate([self._weights, [0.0, 0.0]])
        covariance = np.zeros((2 * missing + 2, 2 * missing + 2))
        covariance[:-2, :-2] = self._covariance
        offsets, slopes = 2 * mine, 2 * mine + 1
        added = weights[offsets].sum(axis=1)[member] + weights[slopes].sum(axis=1)[member] * predicted

        def between(rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Floats:
            total: Floats = covariance[rows[:, :, None], columns[:, None, :]].sum(axis=(1, 2))[member]
            return total

        variance = (
            between(offsets, offsets)
            + 2 * between(offsets, slopes) * predicted
            + between(slopes, slopes) * predicted**2
        )
        return added, variance + self._unseen(points, places == missing)

    def _unseen(self, points: Points, unseen: NDArray[np.bool_]) -> Floats:
        """Prior variance of the levels that no run has shown yet, shape (points,)."""
        offsets = np.array([level.offset_mib for level in self._prior.levels])
        slopes = np.array([level.slope for level in self._prior.levels])
        spread = offsets**2 + (slopes * points.predicted_mib[:, None]) ** 2
        total: Floats = (spread * (unseen & (points.codes > 0))).sum(axis=1)
        return total


def learn(observations: Iterable[Observation], *, device_kind: str) -> MemoryModel:
    """The model after these runs (none: the prior alone).

    Args:
        observations: Measured runs with their predictions.
        device_kind: ``cpu`` or ``cuda``: which prior.
    """
    return MemoryModel(tuple(observations), PRIORS[device_kind], outside=device_kind == "cuda")


def observations_of(trials: Iterable[TrialRecord]) -> tuple[Observation, ...]:
    """The observations among a study's trials: those with a measured and a predicted peak."""
    return tuple(
        Observation(
            config=TrainingConfig.from_mapping(trial.config),
            predicted_bytes=trial.predicted_peak_memory_bytes,
            measured_bytes=trial.peak_memory_bytes,
            outside_bytes=(trial.metrics.get("memory") or {}).get("outside_bytes"),
        )
        for trial in trials
        if trial.outcome in ("completed", "pruned")
        and trial.peak_memory_bytes is not None
        and trial.predicted_peak_memory_bytes is not None
    )


def _outside(observations: Sequence[Observation]) -> tuple[float, float]:
    """Mean and standard deviation of what lies outside the allocator, MiB: the largest seen, or the prior."""
    seen = [each.outside_bytes for each in observations if each.outside_bytes is not None]
    if not seen:
        return OUTSIDE_PRIOR_BYTES / MIB, OUTSIDE_SPREAD_BYTES / MIB
    spread = float(np.std(np.array(seen) / MIB)) if len(seen) > 1 else 16.0
    return max(seen) / MIB, max(spread, 4.0)


def _t_quantile(freedom: float, confidence: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + confidence / 2))
