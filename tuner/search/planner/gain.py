"""What a run may bring: expected gain over the best so far, in throughput and in the front. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.search.planner.candidates import Floats


def expected_gain(differences: Floats) -> Floats:
    """Expected share by which each candidate beats the best so far, smooth also far below it.

    Args:
        differences: Draws of log throughput over the best's, shape (draws, candidates).

    Returns:
        Shape (candidates,): the closed form of the normal with the draws' moments.
    """
    from scipy.special import ndtr

    mean, deviation = differences.mean(axis=0), np.maximum(differences.std(axis=0), 1e-6)
    z = mean / deviation
    density = np.exp(-0.5 * np.minimum(z**2, 700.0)) / np.sqrt(2 * np.pi)
    made: Floats = np.maximum(deviation * (density + z * ndtr(z)), 0.0)
    return made


def gain_of_all(differences: Floats, chances: Floats) -> Floats:
    """What running all of them would gain, by draw, as a share of the best so far; shape (draws,).

    What is near the limit fits or not together: one uniform number a draw decides for all.
    """
    draws = len(differences)
    luck = (np.argsort(np.argsort(np.sin(np.arange(draws) * 12.9898) * 43758.5453 % 1.0)) + 0.5) / draws
    works = luck[:, None] < chances[None, :]
    best = np.where(works, np.expm1(differences), 0.0).max(axis=1, initial=0.0)
    made: Floats = np.maximum(best, 0.0)
    return made


def front_gain(rates: Floats, peaks: Floats, front: Sequence[tuple[float, float]], limit_bytes: float) -> Floats:
    """Area each candidate would add to the front, as a share of (best throughput x limit), shape (candidates,).

    Args:
        rates: Throughputs, units per second.
        peaks: Peaks, bytes; not a number where nothing is known (no area then).
        front: Throughput and peak of the feasible runs so far.
        limit_bytes: The reference of the memory axis.
    """
    if not front:
        return np.zeros(len(rates))
    best = max(rate for rate, _ in front)
    ordered: list[tuple[float, float]] = []
    for rate, peak in sorted(front, key=lambda each: (each[1], -each[0])):
        if not ordered or rate > ordered[-1][0]:
            ordered.append((rate, peak))
    edges = np.array([*(peak for _, peak in ordered), limit_bytes])
    heights = np.array([rate for rate, _ in ordered])
    lower = np.concatenate([[0.0], heights])  # dominated throughput below each edge
    starts = np.concatenate([[0.0], edges[:-1]])
    area = np.zeros(len(rates))
    for start, end, height in zip(starts, edges, lower, strict=True):
        width = np.clip(end - np.maximum(start, peaks), 0.0, None)
        area += np.nan_to_num(width) * np.clip(rates - height, 0.0, None)
    return area / (best * limit_bytes)
