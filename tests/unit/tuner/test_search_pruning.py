"""A run is stopped only when even the optimistic end of what it can do is dominated, however often one looks."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from search_fakes import GIB, run_of, trial_of

from tuner.search.noise import Spread
from tuner.search.pruning import ERROR_RATE, LOOKS, FrontPoint, PruningRule, Steps, dominated, is_look, rule_for
from tuner.search.schedule import History

LEARNT = Spread(relative=0.03, freedom=20.0, windows=10)
PRIOR = Spread(relative=0.03, freedom=3.0)
WINDOW = 4.0


def rule(*front: tuple[float, int], spread: Spread = LEARNT, window: float = WINDOW) -> PruningRule:
    points = [FrontPoint(throughput_low=low, peak_bytes=peak) for low, peak in front]
    return PruningRule(front=points, spread=spread, window_seconds=window)


def even(count: int, seconds: float, units: float = 1.0) -> Steps:
    return Steps(seconds=[seconds] * count, units=[units] * count, elapsed=[seconds] * count)


def first_stop(held: PruningRule, steps: Steps, peak: int = GIB) -> tuple[int, float] | None:
    for count in range(1, len(steps.seconds) + 1):
        seen = Steps(seconds=steps.seconds[:count], units=steps.units[:count], elapsed=steps.elapsed[:count])
        if (bound := held.bound(seen, peak)) is not None:
            return count, bound
    return None


def wavy(chance: random.Random, *, tau: float, wave: float, white: float, step: float = 0.05) -> Steps:
    """A whole window of a configuration whose true throughput is 20 units per second."""
    level, slow, seconds = chance.gauss(0, tau), chance.gauss(0, wave), []
    while sum(seconds) < WINDOW:
        slow = 0.9 * slow + math.sqrt(1 - 0.81) * chance.gauss(0, wave)
        seconds.append(step * math.exp(level + slow + chance.gauss(0, white)))
    return Steps(seconds=seconds, units=[1.0] * len(seconds), elapsed=seconds)


def test_a_run_far_below_a_front_member_is_stopped_early_and_keeps_a_true_bound():
    found = first_stop(rule((20.0, GIB)), even(40, 0.1))  # 10 units per second
    assert found is not None
    count, bound = found
    assert count < 20
    assert 10.0 < bound < 20.0


@pytest.mark.parametrize("peak", [GIB - 1, 0])
def test_a_rival_that_needs_more_memory_stops_nobody(peak):
    assert first_stop(rule((1000.0, GIB)), even(40, 0.1), peak) is None


def test_an_equal_rival_and_an_empty_front_stop_nobody():
    assert first_stop(rule((10.0, GIB)), even(40, 0.1)) is None
    assert first_stop(rule(), even(40, 0.1)) is None


@pytest.mark.parametrize("tau", [0.0, 0.03])
@pytest.mark.parametrize("wave", [0.0, 0.1])
def test_over_all_looks_the_rate_of_wrong_stops_stays_under_the_stated_one(tau, wave):
    """A rival that is exactly as fast, its true throughput known: every stop is wrong."""
    chance = random.Random(7)
    whole = math.hypot(tau, wave * math.sqrt(19 * 0.05 / WINDOW))  # what a whole window's mean scatters by
    held = rule((20.0, GIB), spread=Spread(relative=whole, freedom=30.0))
    tries = 1000
    wrong = sum(first_stop(held, wavy(chance, tau=tau, wave=wave, white=0.05)) is not None for _ in range(tries))
    assert wrong <= ERROR_RATE * tries


def test_the_less_is_known_of_the_spread_the_later_a_run_is_stopped():
    steps = even(80, 0.08)  # 12.5 units per second
    sure, unsure = (first_stop(rule((20.0, GIB), spread=spread), steps) for spread in (LEARNT, PRIOR))
    assert sure is not None
    assert unsure is None or unsure[0] > sure[0]


def test_one_step_stops_only_what_is_hopeless():
    assert first_stop(rule((10.0, GIB)), even(1, 4.0)) is not None  # 0.25 units per second
    assert first_stop(rule((1.0, GIB)), even(1, 4.0)) is None


def test_a_warm_up_that_lasts_longer_does_not_stop_a_run_that_becomes_fast():
    half_way = Steps(seconds=[0.15] * 4 + [0.05] * 8, units=[1.0] * 12, elapsed=[0.15] * 4 + [0.05] * 8)
    assert rule((19.0, GIB), window=2.0).bound(half_way, GIB) is None


def test_composed_steps_are_counted_by_the_time_they_really_took():
    """Three of 32 micro-steps ran: the step counts 3.2 s, the window has seen 0.3 s of it."""
    composed = Steps(seconds=[3.2] * 2, units=[32.0] * 2, elapsed=[0.3] * 2)
    whole = Steps(seconds=[3.2] * 2, units=[32.0] * 2, elapsed=[3.2] * 2)
    held = rule((35.0, GIB), spread=Spread(relative=0.1, freedom=20.0))
    assert held.bound(whole, GIB) is not None
    assert held.bound(composed, GIB) is None


def test_looks_come_at_shares_of_the_window_and_never_twice():
    elapsed = [0.05] * 80
    looks = [count for count in range(1, 81) if is_look(elapsed[:count], WINDOW)]
    assert len(looks) == len(LOOKS)
    assert looks[0] == 5
    assert is_look([9.0], WINDOW)
    assert not is_look([9.0, 0.1], WINDOW)
    assert not is_look([], WINDOW)


def test_steps_without_units_or_time_give_no_bound():
    assert rule((1.0, GIB)).bound(even(30, 0.5, units=0.0), GIB) is None
    assert rule((1.0, GIB)).bound(Steps(seconds=[0.0], units=[1.0], elapsed=[1.0]), GIB) is None


def test_the_function_for_replays_says_the_same():
    found = [
        dominated([(20.0, GIB)], [0.1] * count, 1.0, GIB, window_seconds=WINDOW, spread=LEARNT)
        for count in range(1, 41)
    ]
    first = next(index for index, bound in enumerate(found, start=1) if bound is not None)
    assert (first, found[first - 1]) == first_stop(rule((20.0, GIB)), even(40, 0.1))


def history(count: int = 3, **values: object) -> History:
    trials = [trial_of(number) for number in range(count)] + [trial_of(count, outcome=None)]
    return History(trials=trials, runs=[run_of(each.id, 100.0, 10.0 * each.id) for each in trials[:count]], **values)


def test_a_search_run_is_held_against_every_measured_configuration():
    made = rule_for(history(), history().trials[-1], sampler="auto", window_seconds=WINDOW)
    assert made is not None
    assert len(made.front) == 3
    assert all(0 < each.throughput_low < 100.0 for each in made.front)


@pytest.mark.parametrize("sampler", ["auto", "grid"])
def test_baseline_grid_and_a_study_that_has_seen_little_are_never_stopped(sampler):
    known = history()
    baseline = replace(known.trials[-1], number=0)
    assert rule_for(known, baseline, sampler=sampler, window_seconds=WINDOW) is None
    few = history(2)
    assert rule_for(few, few.trials[-1], sampler=sampler, window_seconds=WINDOW) is None
    assert (rule_for(known, known.trials[-1], sampler=sampler, window_seconds=WINDOW) is None) == (sampler == "grid")


def test_what_is_over_the_limit_dominates_nobody():
    known = history(limit_bytes=GIB - 1)
    assert rule_for(known, known.trials[-1], sampler="auto", window_seconds=WINDOW) is None
