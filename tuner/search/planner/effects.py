"""The one model behind what is learned: a sum of effects with normal priors, in closed form. Pure.

For the logarithm of a positive quantity (throughput, peak, seconds of a run) of configuration c in study s::

    y = prior mean(c) + level_s + sum over knobs k of main_k(value)
        + sum over pairs (k, l) of pair_kl(value, value) + family(c) + own(c) + noise

A hierarchical Bayesian linear model (Gelman et al., Bayesian Data Analysis, chapter 15) whose weights all have normal
priors, kept in its dual form: the covariance of two configurations is the sum over the parts of (prior variance x how
alike they are in it), so that its cost goes with the number of runs and not with the number of weights. Values of an
ordered integer are alike when they are near in factors of two; the micro-batch besides follows a launch-bound floor.
Three scales (main effects, interactions, noise) are set by the marginal likelihood over a small grid.
Studies share main effects, pairs and families as far as their similarity says, and never the level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from tuner.search.planner.candidates import Floats
from tuner.search.planner.priors import FAMILY_SPREAD
from tuner.search.planner.structure import Factor, Points, Structure, joined

LEARN_SCALES_FROM = 60
"""Runs the scales are learned from at most: the fastest ones, near which the decision falls."""
GRID_MAIN, GRID_PAIR, GRID_NOISE = (0.7, 1.0, 2.0), (0.15, 0.5, 1.5, 4.0), (0.15, 0.5, 1.5, 4.0)
"""Variance factors tried."""
FREEDOM = 4.0
"""Degrees of freedom of the noise: a neighbour on the machine can spoil a window altogether."""
JITTER = 1e-9


@dataclass(frozen=True, kw_only=True)
class Scales:
    """Variance factors over the prior's."""

    main: float = 1.0
    pair: float = 1.0
    noise: float = 1.0


class Posterior:
    """The model after some observations; never changes."""

    def __init__(self, structure: Structure, points: Points, values: Floats, noise: Floats, scales: Scales) -> None:
        self.structure, self.points, self.scales = structure, points, scales
        self.values, self.noise = values, noise
        noisy = self._covariance(points, points) + np.diag(noise * scales.noise + JITTER)
        self._whiten: Floats = np.linalg.inv(np.linalg.cholesky(noisy))  # triangular solves would wake BLAS's threads
        self._pull = self._whiten @ (values - structure.prior_mean(points.codes))
        self._alpha: Floats = self._whiten.T @ self._pull

    def _covariance(self, a: Points, b: Points) -> Floats:
        level, main, pair = self.structure.covariance(a, b)
        return level + self.scales.main * main + self.scales.pair * pair

    def joint(self, points: Points) -> tuple[Floats, Floats]:
        """Mean, shape (points,), and covariance, shape (points, points), of the quantity without noise."""
        half = self._whiten @ self._covariance(self.points, points)
        mean = self.structure.prior_mean(points.codes) + half.T @ self._pull
        return mean, self._covariance(points, points) - half.T @ half

    def marginals(self, points: Points) -> tuple[Floats, Floats]:
        """Mean and variance without noise, shape (points,) each."""
        half = self._whiten @ self._covariance(self.points, points)
        mean: Floats = self.structure.prior_mean(points.codes) + half.T @ self._pull
        level, main, pair = self.structure.variances(points)
        return mean, np.maximum(level + self.scales.main * main + self.scales.pair * pair - (half**2).sum(axis=0), 0.0)

    def means(self, points: Points) -> Floats:
        """Means of many configurations of this study by tables of effects, shape (points,)."""
        weight = self._alpha * np.where(self.points.study == 0, 1.0, self.points.similarity)
        mine = self.points.study == 0
        total = self.structure.prior_mean(points.codes)
        total += self.structure.beliefs.level_spread**2 * self._alpha[mine].sum()
        for each in self.structure.factors:
            table = self.scales.main * (each.main @ (each.main[self.points.codes[:, each.column]].T @ weight))
            total += table[points.codes[:, each.column]]
        for one, other in combinations(self.structure.factors, 2):
            total += (
                self.scales.pair
                * self._pair_table(one, other, weight)[points.codes[:, one.column], points.codes[:, other.column]]
            )
        return total + self.scales.pair * self._families(points, weight)

    def _pair_table(self, one: Factor, other: Factor, weight: Floats) -> Floats:
        left = (one.pair @ one.pair.T)[:, self.points.codes[:, one.column]]
        right = (other.pair @ other.pair.T)[:, self.points.codes[:, other.column]]
        made: Floats = (left * weight) @ right.T
        return made

    def _families(self, points: Points, weight: Floats) -> Floats:
        if not len(self.points):
            return np.zeros(len(points))
        known, places = np.unique(self.points.family, return_inverse=True)
        found = np.searchsorted(known, points.family)
        found = np.minimum(found, len(known) - 1)
        inside = known[found] == points.family
        micro = self.structure.micro
        if micro is None:
            table = np.bincount(places, weights=weight)
            return FAMILY_SPREAD**2 * np.where(inside, table[found], 0.0)
        near = micro.pair @ micro.pair.T
        sums = np.zeros((len(known), len(near)))
        np.add.at(sums, (places, self.points.codes[:, micro.column]), weight)
        table = sums @ (near / near.max())
        return FAMILY_SPREAD**2 * np.where(inside, table[found, points.codes[:, micro.column]], 0.0)

    def heavier(self) -> Floats:
        """Factors on the noise that make its tails Student's: readings far off what all others say weigh less."""
        precision = (self._whiten**2).sum(axis=0)
        surprise = self._alpha**2 / precision  # squared standardised leave-one-out residuals
        made: Floats = np.maximum((FREEDOM + surprise) / (FREEDOM + 1), 1.0)
        return made

    def bounded(self, points: Points, bounds: Floats, upper: bool, spread: float) -> Posterior:
        """The model after results of which only a bound is known.

        Each enters as the normal observation that turns the model's belief into the moments of that belief cut at the
        bound (one sweep of expectation propagation; Minka 2001): a bound it already expected changes nothing.

        Args:
            points: What ran.
            bounds: Its bounds, shape (points,).
            upper: Whether the values lie below them.
            spread: Noise of the bounds' own measurement, in the same logarithm.
        """
        if not len(points):
            return self
        mean, covariance = self.joint(points)
        variance = np.maximum(np.diag(covariance), 1e-8) + spread**2
        pseudo, noise = _cut(mean, variance, bounds, -1.0 if upper else 1.0)
        told = noise < 1e4
        return Posterior(
            self.structure,
            joined(self.points, points.at(np.flatnonzero(told))),
            np.concatenate([self.values, pseudo[told]]),
            np.concatenate([self.noise, noise[told] / self.scales.noise]),
            self.scales,
        )


def learn(structure: Structure, points: Points, values: Floats, noise: Floats) -> Posterior:
    """The model after these observations, its scales the likeliest of the grid.

    Args:
        structure: The model's parts.
        points: What ran; may be empty.
        values: The logarithms measured, shape (points,).
        noise: Variance of each before scaling, shape (points,).
    """
    chosen = np.argsort(-values, kind="stable")[:LEARN_SCALES_FROM]
    scales = _likeliest(structure, points.at(chosen), values[chosen], noise[chosen])
    made = Posterior(structure, points, values, noise, scales)
    return Posterior(structure, points, values, noise * made.heavier(), scales) if len(points) > 3 else made


def _likeliest(structure: Structure, points: Points, values: Floats, noise: Floats) -> Scales:
    if len(points) < 3:
        return Scales()
    level, main, pair = structure.covariance(points, points)
    residual = values - structure.prior_mean(points.codes)
    grid = list(product(GRID_MAIN, GRID_PAIR, GRID_NOISE))
    scale = np.array(grid)[:, :, None, None]
    stacked = level + scale[:, 0] * main + scale[:, 1] * pair + scale[:, 2] * np.diag(noise)
    roots = np.linalg.cholesky(stacked + JITTER * np.eye(len(points)))
    pulled = np.linalg.solve(roots, np.broadcast_to(residual[:, None], (len(grid), len(residual), 1)))[:, :, 0]
    fit = -0.5 * (pulled**2).sum(axis=1) - np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
    belief = -0.5 * (np.log(np.array(grid)) ** 2 / np.log(np.array([2.5, 3.0, 2.5])) ** 2).sum(axis=1)
    best = grid[int(np.argmax(fit + belief))]
    return Scales(main=best[0], pair=best[1], noise=best[2])


def _cut(mean: Floats, variance: Floats, bounds: Floats, sign: float) -> tuple[Floats, Floats]:
    """Value and variance of the observation that stands for "sign x value is above sign x bound"."""
    from scipy.special import log_ndtr

    deviation = np.sqrt(variance)
    z = np.clip(sign * (mean - bounds) / deviation, -30, 30)
    hazard = np.exp(-0.5 * z**2 - 0.5 * math.log(2 * math.pi) - log_ndtr(z))
    shift = hazard * (hazard + z)  # share of the variance that the cut takes away
    after = variance * np.clip(1 - shift, 1e-6, 1.0)
    moved = mean + sign * deviation * hazard
    noise = 1 / np.maximum(1 / after - 1 / variance, 1e-9)
    return moved + (moved - mean) * noise / variance, noise
