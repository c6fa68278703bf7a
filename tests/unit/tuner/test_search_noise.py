"""Intervals that cover on a machine with autocorrelated steps and slow drift; ties; disturbed windows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from search_fakes import run_of, trial_of

from tuner.search.noise import PRIOR_SPREAD, compare, intervals, overlaps, study_spread
from tuner.search.windows import windows_of

CONFIGS, ROUNDS = 6, 4


class Machine:
    """Steps of a shared machine: lag-1 autocorrelation 0.79 inside, a slow drift over the study. All seeded."""

    def __init__(
        self, seed: int, *, step_sd: float = 0.17, drift_sd: float = 0.04, drift_seconds: float = 60.0
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.step_sd, self.drift_sd, self.drift_seconds = step_sd, drift_sd, drift_seconds
        self.drift, self.at = self.random.normal(0, drift_sd), 0.0

    def window(self, rate: float, at: float, steps: int = 60) -> tuple[float, float]:
        """Throughput of a window, and the relative standard error a naive window reports."""
        keep = math.exp(-(at - self.at) / self.drift_seconds)
        self.drift = keep * self.drift + self.random.normal(0, self.drift_sd * math.sqrt(1 - keep**2))
        self.at = at
        noise = np.empty(steps)
        noise[0] = self.random.normal(0, self.step_sd)
        for index in range(1, steps):
            noise[index] = 0.79 * noise[index - 1] + self.random.normal(0, self.step_sd * math.sqrt(1 - 0.79**2))
        seconds = np.exp(noise - self.drift)
        return rate / float(seconds.mean()), float(seconds.std() / seconds.mean() / math.sqrt(steps))


def study(seed: int, **machine):
    """Six configurations: the baseline every third run, the others ROUNDS windows each, interleaved."""
    noisy = Machine(seed, **machine)
    rates = [100.0 * 1.1**index for index in range(CONFIGS)]
    runs, at = [], 0.0
    for _ in range(ROUNDS):
        for index in range(CONFIGS):
            value, error = noisy.window(rates[index], at)
            purpose = "repeat" if at >= 10 * CONFIGS else "search"
            runs.append(run_of(index + 1, value, at, purpose, measurement={"relative_standard_error": error}))
            at += 10.0
    trials = [trial_of(index) for index in range(CONFIGS)]
    # what a step takes on average, so that the true rate is a mean over steps as the window's is
    mean_step = math.exp(noisy.step_sd**2 / 2)
    return runs, trials, [rate / mean_step for rate in rates]


MACHINES = ({}, {"drift_sd": 0.1, "drift_seconds": 400.0}, {"step_sd": 0.05, "drift_sd": 0.0})


@pytest.mark.parametrize("machine", MACHINES)
def test_nominal_95_percent_covers_at_least_90(machine):
    hits = tries = 0
    for seed in range(60):
        runs, trials, truth = study(seed, **machine)
        known = intervals(runs, trials, "cpu")
        # the study's own level is common to all its windows: compare beside it, as comparisons between trials do
        level = np.mean([math.log(known[index + 1].mean / truth[index]) for index in range(CONFIGS)])
        for index in range(CONFIGS):
            each = known[index + 1]
            hits += each.low <= truth[index] * math.exp(level) <= each.high
            tries += 1
    assert hits / tries >= 0.90


@pytest.mark.parametrize("machine", MACHINES)
def test_comparisons_of_single_windows_cover_as_well(machine):
    """A study as it is: one window each, the baseline every fourth run; nothing of the truth is used for the level."""
    hits = tries = 0
    for seed in range(80):
        noisy, runs = Machine(seed, **machine), []
        order = [0, 1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9, 0]
        for place, index in enumerate(order):
            value, error = noisy.window(100.0 * 1.1**index, 10.0 * place)
            extra = {"measurement": {"relative_standard_error": error}}
            runs.append(run_of(index + 1, value, 10.0 * place, "search", **extra))
        known = intervals(runs, [trial_of(index) for index in range(10)], "cpu")
        for index in range(1, 10):
            seen = compare(known[index + 1], known[1])
            hits += seen.low <= 1.1**index <= seen.high
            tries += 1
    assert hits / tries >= 0.90


def test_the_steps_own_interval_would_not_cover():
    """Why the between-run variance is there: the naive interval of one window covers a third of the time."""
    hits = 0
    for seed in range(200):
        value, error = Machine(seed, drift_sd=0.0).window(100.0, 0.0)
        truth = 100.0 / math.exp(0.17**2 / 2)
        hits += abs(math.log(value / truth)) <= 1.96 * error
    assert hits / 200 < 0.7


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_before_any_repeat_the_prior_stands(kind):
    runs, trials = [run_of(1, 100.0, 0.0)], [trial_of(0)]
    spread = study_spread(runs, trials, kind)
    assert spread.windows == 0
    assert spread.relative == pytest.approx(PRIOR_SPREAD[kind])
    only = intervals(runs, trials, kind)[1]
    assert only.low < 100 < only.high
    assert only.high / only.mean - 1 > 2 * PRIOR_SPREAD[kind]


def test_repeats_replace_the_prior():
    calm = [run_of(index + 1, 100.0 * 1.001**again, 100.0 * again + index) for again in range(8) for index in range(4)]
    trials = [trial_of(index) for index in range(4)]
    assert study_spread(calm, trials, "cpu").relative < PRIOR_SPREAD["cpu"] / 2
    wild = [run_of(1, 100.0 * (1 + 0.2 * (again % 2)), 10.0 * again) for again in range(8)]
    assert study_spread(wild, trials, "cpu").relative > PRIOR_SPREAD["cpu"] * 2


@pytest.mark.case("H06")
def test_a_small_difference_is_a_tie_and_a_large_one_is_not():
    runs = [run_of(1, 100.0, 0.0), run_of(1, 104.0, 20.0), run_of(2, 104.0, 10.0), run_of(3, 200.0, 30.0)]
    known = intervals(runs, [trial_of(index) for index in range(3)], "cpu")
    assert compare(known[2], known[1]).verdict == "tie"
    assert compare(known[3], known[1]).verdict == "faster"
    assert compare(known[1], known[3]).verdict == "slower"
    assert overlaps(known[1], known[2])
    assert not overlaps(known[1], known[3])


def test_disturbed_windows_do_not_count_once_there_are_others():
    baseline = [run_of(1, value, at) for value, at in ((33.0, 0.0), (100.0, 50.0), (101.0, 100.0))]
    other = [run_of(2, 40.0, 10.0), run_of(2, 120.0, 60.0, "repeat"), run_of(3, 50.0, 12.0)]
    known = intervals([*baseline, *other], [trial_of(index) for index in range(3)], "cpu")
    assert known[2].mean == pytest.approx(120.0)
    assert not known[2].disturbed
    assert known[3].disturbed
    assert known[1].mean == pytest.approx(100.5, rel=0.01)


def test_a_slow_drift_is_taken_out_by_the_baseline():
    def level(at: float) -> float:
        return math.exp(0.2 * math.sin(at / 300))

    runs = [run_of(1, 100.0 * level(at), at, "repeat") for at in range(0, 1000, 60)]
    runs += [run_of(2, 110.0 * level(at), at + 20) for at in (30.0, 450.0)]
    known = intervals(runs, [trial_of(0), trial_of(1)], "cpu")
    assert known[2].mean / known[1].mean == pytest.approx(1.1, rel=0.03)
    assert known[2].standard_error < 0.05


def test_failed_and_confirmation_runs_are_no_search_windows():
    runs = [
        run_of(1, 100.0, 0.0),
        run_of(1, 90.0, 10.0, "confirm"),
        run_of(1, 80.0, 20.0, "repeat", outcome="infra"),
        run_of(2, None, 30.0, outcome="device_oom"),
        run_of(3, 0.0, 40.0),
    ]
    assert [window.trial_id for window in windows_of(runs)] == [1]
