"""What a study will take, before it starts: its runs counted, with the windows, repeats and confirmation. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.answer.confirm import CONFIRMED_WITHOUT_LIMIT, MOST_ROUNDS, ROUNDS_WITHOUT_LIMIT, WINDOW_FACTOR
from tuner.search.schedule import BASELINE_EVERY, CONTENDER_EVERY
from tuner.spec.model import Limits

BESIDE_THE_WINDOW = 2.5
"""Seconds a run takes beside its window: start, worst case, warm-up. Of a small model; large ones take more."""
BEFORE_THE_FIRST = 15.0
"""Seconds for what the machine can run, for the predictions, and for the load before the first window."""


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """At most so much; a search that ends by itself takes less.

    Attributes:
        trials: Configurations, the baseline included.
        runs: Search runs, further windows and the confirmation's.
        seconds: All of it; never more than the time limit.
    """

    trials: int
    runs: int
    seconds: float


def plan(limits: Limits, configurations: int) -> StudyPlan:
    """The plan of a study.

    Args:
        limits: Of its spec.
        configurations: In its space.
    """
    trials = min(limits.trials, configurations)
    further = trials // BASELINE_EVERY + trials // CONTENDER_EVERY + 1
    rounds = ROUNDS_WITHOUT_LIMIT if limits.time_seconds is None else MOST_ROUNDS
    confirmed = rounds * min(trials, CONFIRMED_WITHOUT_LIMIT + 1)
    seconds = (
        BEFORE_THE_FIRST
        + (trials + further) * (limits.window_seconds + BESIDE_THE_WINDOW)
        + confirmed * (WINDOW_FACTOR * limits.window_seconds + BESIDE_THE_WINDOW)
    )
    most = seconds if limits.time_seconds is None else min(seconds, limits.time_seconds)
    return StudyPlan(trials=trials, runs=trials + further + confirmed, seconds=most)
