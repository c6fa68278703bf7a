"""The front, its knee and its area."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from search_fakes import GIB, trial_of

from tuner.search.front import best_trial, hypervolume, knee, pareto_front


def points(*pairs):
    return [trial_of(index, throughput=float(up), peak_memory_bytes=down) for index, (up, down) in enumerate(pairs)]


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), max_size=30))
def test_the_front_is_what_no_other_beats(pairs):
    trials = points(*pairs)
    front = pareto_front(trials, None)
    for trial in trials:
        beaten = any(
            other.throughput >= trial.throughput
            and other.peak_memory_bytes <= trial.peak_memory_bytes
            and (other.throughput, other.peak_memory_bytes) != (trial.throughput, trial.peak_memory_bytes)
            for other in trials
        )
        same = [
            each
            for each in front
            if (each.throughput, each.peak_memory_bytes) == (trial.throughput, trial.peak_memory_bytes)
        ]
        assert len(same) == (0 if beaten else 1)
    assert [each.throughput for each in front] == sorted((each.throughput for each in front), reverse=True)
    assert (best_trial(trials, None) in front) == bool(trials)


def test_only_feasible_completed_trials_are_on_it():
    trials = [
        *points((100, 3 * GIB), (50, GIB)),
        trial_of(2, throughput=500.0, outcome="numerical"),
        trial_of(3, throughput=500.0, outcome="pruned"),
        trial_of(4, throughput=None),
        trial_of(5, throughput=900.0, peak_memory_bytes=None),
    ]
    assert [each.number for each in pareto_front(trials, 2 * GIB)] == [1]


def test_the_knee_is_farthest_from_the_line_between_the_ends():
    front = pareto_front(points((100, 100), (95, 40), (50, 20), (10, 10)), None)
    middle = knee(front)
    assert middle is not None
    assert middle.throughput == 95
    assert knee([]) is None
    assert knee(front[:1]) is front[0]


def test_the_area_of_two_points():
    front = pareto_front(points((100, 8), (60, 4)), None)
    assert hypervolume(front, 10) == 100 * 2 + 60 * 4
    assert hypervolume([], 10) == 0
