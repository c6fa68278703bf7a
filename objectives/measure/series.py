"""Statistics of a short series of step times from a machine that is not alone. Pure: no numpy, no torch.

Step times that follow each other are alike (lag-1 autocorrelation 0.79 was measured on a shared machine), so
``s / sqrt(n)`` is far too small. Everything here pays for that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist, fmean

FEWEST_BATCHES = 20
"""Batch means need about 20 batches before their own scatter can be trusted."""
LARGEST_CORRELATION = 0.95
"""A short series cannot tell a stronger correlation from a drift; the correction is kept finite here."""
FEWEST_DEGREES = 3.0
"""Degrees of freedom that correlation may leave a series of more than three values: below, an interval says nothing."""
CORRELATION_OF_SHORT_SERIES = 0.3
"""A series below 20 points cannot show that it is uncorrelated: at least so much is assumed."""
CORRELATION_OF_A_WAVE, SHORT_OF_A_WAVE = 0.5, 40
"""Below 40 values a slow wave looks like a change: the test for one assumes at least this correlation there."""


def student_t(probability: float, degrees: float) -> float:
    """Quantile of Student's t distribution for a probability above 0.5.

    Exact for 1 and 2 degrees of freedom, else Hill's expansion (G. W. Hill, Algorithm 396, CACM 1970): four digits.
    Fractional degrees are rounded down.
    """
    whole = max(1, int(degrees))
    if whole == 1:
        return math.tan(math.pi * (probability - 0.5))
    if whole == 2:
        alpha = 4 * probability * (1 - probability)
        return 2 * (probability - 0.5) * math.sqrt(2 / alpha)
    return _hill(2 * (1 - probability), whole)


def _hill(two_sided: float, degrees: int) -> float:
    a = 1 / (degrees - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * math.sqrt(a * math.pi / 2) * degrees
    y = (d * two_sided) ** (2 / degrees)
    if y <= 0.05 + a:
        tail = (
            (1 / (((degrees + 6) / (degrees * y) - 0.089 * d - 0.822) * (degrees + 2) * 3)) + 0.5 / (degrees + 4)
        ) * y
        y = (tail - 1) * (degrees + 1) / (degrees + 2) + 1 / y
        return math.sqrt(degrees * y)
    x = NormalDist().inv_cdf(two_sided / 2)
    y = x**2
    c += 0.3 * (degrees - 4.5) * (x + 0.6) if degrees < 5 else 0.0
    c += (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b
    y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
    return math.sqrt(degrees * math.expm1(a * y**2))


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of the values lie, with linear interpolation. ``values`` must not be empty."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def variance(values: Sequence[float]) -> float:
    """Sample variance (n - 1); 0 below two values."""
    if len(values) < 2:
        return 0.0
    mean = fmean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def correlation(values: Sequence[float]) -> float:
    """Lag-1 autocorrelation, corrected for its bias towards below (Kendall 1954: ``-(1 + 4 r) / n``), in [0, 0.95]."""
    mean = fmean(values)
    centred = [value - mean for value in values]
    total = math.fsum(value * value for value in centred)
    if total <= 0.0:
        return 0.0
    raw = math.fsum(a * b for a, b in pairwise(centred)) / total
    corrected = raw + (1 + 4 * raw) / len(values)
    return min(max(corrected, 0.0), LARGEST_CORRELATION)


def inflation(values: Sequence[float], *, at_least: float = 0.0) -> float:
    """By how much correlation enlarges the variance of the mean: ``(1 + r) / (1 - r)`` (first order), at least 1."""
    r = max(correlation(values), at_least)
    return (1 + r) / (1 - r)


def error_of_mean(values: Sequence[float]) -> tuple[float, float] | None:
    """Standard error of the mean of a correlated series, and its degrees of freedom. None below two values.

    From 20 values on: the means of 20 consecutive batches, with the correlation left between batches paid for. Below:
    the values themselves, taken as correlated by at least 0.3. What changes more slowly than the whole series cannot be
    seen from inside it: the variance between windows must be added by whoever compares windows.
    """
    if len(values) < 2:
        return None
    if len(values) < FEWEST_BATCHES:
        factor = inflation(values, at_least=CORRELATION_OF_SHORT_SERIES)
        means: Sequence[float] = values
    else:
        means = batch_means(values, FEWEST_BATCHES)
        factor = inflation(means)
    error = math.sqrt(variance(means) / len(means) * factor)
    return error, max(len(means) / factor - 1, min(len(means) - 1.0, FEWEST_DEGREES))


def batch_means(values: Sequence[float], batches: int) -> list[float]:
    """Means of consecutive batches that differ in size by at most one."""
    edges = [batch * len(values) // batches for batch in range(batches + 1)]
    return [fmean(values[low:high]) for low, high in pairwise(edges)]


def change_to_faster(values: Sequence[float], *, smallest_ratio: float = 1.05, threshold: float = 1.63) -> int:
    """Where in its first half a series of positive values becomes faster for good; 0 when nothing says so.

    A one-sided CUSUM test on logarithms whose scale is the long-run error of the residuals, so that a slow wave of a
    shared machine is not taken for a change. ``threshold`` 1.63 is passed by 0.5 % of series without a change
    (supremum of a Brownian bridge: ``exp(-2 x^2)``).
    """
    n = len(values)
    if n < 12:
        return 0
    logs = [math.log(max(value, 1e-12)) for value in values]
    place, height = _cusum_peak(logs)
    if place == 0:
        return 0
    head, tail = fmean(logs[:place]), fmean(logs[place:])
    residuals = [y - (head if index < place else tail) for index, y in enumerate(logs)]
    doubted = CORRELATION_OF_A_WAVE if n < SHORT_OF_A_WAVE else 0.0
    scale = math.sqrt(variance(residuals) * inflation(residuals, at_least=doubted) * n)
    significant = height > threshold * scale and height > 1e-9
    return place if significant and head - tail > math.log(smallest_ratio) else 0


def _cusum_peak(values: Sequence[float]) -> tuple[int, float]:
    """The place in the first half where the running sum above the mean is highest, and that height."""
    mean, running, place, height = fmean(values), 0.0, 0, 0.0
    for index in range(len(values) // 2):
        running += values[index] - mean
        if running > height:
            place, height = index + 1, running
    return place, height
