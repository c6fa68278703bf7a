"""What really fits: the limit, or somewhat less. Pure.

A run may fail although its peak lies below the limit: caps are stricter than the peaks that are measured, memory is
fragmented, a first step needs more. How much less fits is one unknown share, with a prior that believes the limit; each
run out of memory whose peak was expected below makes a smaller share likelier, each run that fitted excludes the shares
below its peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.search.planner.candidates import Floats

SHARES: Floats = np.exp(-np.concatenate([np.linspace(0.0, 0.4, 33), np.geomspace(0.44, 5.0, 24)]))
"""Shares of the limit that may be what fits."""
AS_STATED = 0.6
"""Belief that the limit is what fits."""
FALLS_OFF = 0.06
"""Of what is below, in logarithms: the mean distance."""
FAR_BELOW = 0.002
"""Belief that it is anything else, in equal parts: a limit that is no limit of this kind of memory at all."""
SURPRISE = 1e-4
"""Chance of anything the model holds impossible."""
LEAST_ERROR = 1e-6
"""No peak is known better than this share of the limit."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Edge:
    """Belief in each of the shares.

    Attributes:
        limit_bytes: The stated limit.
        weights: Shape of :data:`SHARES`, summing to 1.
    """

    limit_bytes: float
    weights: Floats

    @property
    def expected_bytes(self) -> float:
        """Expectation of what fits."""
        return float(self.limit_bytes * (self.weights @ SHARES))

    @property
    def error_bytes(self) -> float:
        """Its standard deviation."""
        spread = self.weights @ (SHARES * self.limit_bytes - self.expected_bytes) ** 2
        return float(np.sqrt(spread))

    def chances(self, mean_bytes: Floats, error_bytes: Floats) -> Floats:
        """Chance that peaks fit, for their means and standard deviations; shape as theirs."""
        z = (self.limit_bytes * SHARES[:, None] - mean_bytes[None, :]) / np.maximum(
            error_bytes, LEAST_ERROR * self.limit_bytes
        )[None, :]
        made: Floats = np.minimum(self.weights @ normal_cdf(z), 1.0)
        return made

    def rough_chances(self, mean_bytes: Floats, error_bytes: Floats) -> Floats:
        """The same in one step, for whole spaces."""
        deviation = np.sqrt(np.maximum(error_bytes, LEAST_ERROR * self.limit_bytes) ** 2 + self.error_bytes**2)
        return normal_cdf((self.expected_bytes - mean_bytes) / deviation)


def edge_after(
    limit_bytes: float,
    failed_mean: Floats,
    failed_error: Floats,
    fitted_bytes: Sequence[float],
    *,
    stated: bool = True,
) -> Edge:
    """The belief after runs.

    Args:
        limit_bytes: The stated limit, or the most that is possible.
        failed_mean: Expected peak of each run that ran out of memory, in bytes.
        failed_error: Standard deviation of each.
        fitted_bytes: Measured peaks of runs that fitted.
        stated: Whether somebody has said that the limit is what fits; else each factor below is as likely.
    """
    below = np.exp(np.log(SHARES[1:]) / FALLS_OFF) * np.diff(-np.log(SHARES))
    near = (1 - AS_STATED - FAR_BELOW) * below / below.sum()
    prior = np.concatenate([[AS_STATED], near + FAR_BELOW / len(below)])
    prior = prior if stated else np.gradient(-np.log(SHARES))
    z = (failed_mean[None, :] - limit_bytes * SHARES[:, None]) / np.maximum(failed_error, LEAST_ERROR * limit_bytes)[
        None, :
    ]
    weights = prior * np.prod(SURPRISE + (1 - SURPRISE) * normal_cdf(z), axis=1)
    if len(fitted_bytes):
        weights = np.where(limit_bytes * SHARES >= max(fitted_bytes), weights, weights * SURPRISE)
    return Edge(limit_bytes=limit_bytes, weights=weights / weights.sum())


def normal_cdf(z: Floats) -> Floats:
    """Chance that a standard normal number lies below, elementwise."""
    from scipy.special import ndtr

    made: Floats = ndtr(z)
    return made
