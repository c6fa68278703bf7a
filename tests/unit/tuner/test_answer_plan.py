"""The plan counts every run a study makes, and never promises more time than there is."""

from __future__ import annotations

from tuner.answer.plan import plan
from tuner.spec.model import Limits


def test_repeats_and_confirmation_are_counted() -> None:
    made = plan(Limits(trials=20, window_seconds=4.0, time_seconds=None), 100)
    assert made.trials == 20
    assert made.runs == 20 + 9 + 15
    assert made.seconds > 29 * 4.0 + 15 * 8.0


def test_a_small_space_takes_less_and_the_time_limit_holds() -> None:
    small = plan(Limits(trials=20, window_seconds=4.0, time_seconds=None), 3)
    assert small.trials == 3
    assert small.seconds < plan(Limits(trials=20, window_seconds=4.0, time_seconds=None), 100).seconds
    assert plan(Limits(trials=200, window_seconds=4.0, time_seconds=240.0), 500).seconds == 240.0
