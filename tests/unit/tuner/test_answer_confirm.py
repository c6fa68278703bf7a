"""The confirmation: who runs, in which order, and what the runs then say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_fakes import GIB, limits_of, run_of, spec_of, trial_of

from tuner.answer.confirm import FEWEST_ROUNDS, MOST_ROUNDS, next_confirmation, plan
from tuner.answer.contenders import contenders, demoted, given_up
from tuner.answer.verdict import confirmation, rounds_of
from tuner.search.schedule import History

LIMIT = 10 * GIB


def history_of(rates: dict[int, float], runs=(), **values) -> History:
    """Trials by number with one search window each."""
    trials = [trial_of(number, throughput=rate) for number, rate in rates.items()]
    windows = [run_of(number + 1, rate, 10.0 * number) for number, rate in rates.items()]
    return History(trials=trials, runs=[*windows, *runs], limit_bytes=LIMIT, **values)


def confirm_runs(rates: dict[int, list[float]], begin: float = 1000.0):
    """Interleaved confirmation runs by trial number."""
    rounds = max(map(len, rates.values()))
    made = []
    for turn in range(rounds):
        numbers = [number for number in rates if turn < len(rates[number])]
        for number in numbers if turn % 2 == 0 else reversed(numbers):
            made.append(run_of(number + 1, rates[number][turn], begin + 20.0 * len(made), "confirm"))
    return made


def test_contenders_overlap_the_fastest_and_come_fastest_first():
    history = history_of({0: 100.0, 1: 300.0, 2: 310.0, 3: 200.0, 4: 305.0})
    assert [each.number for each in contenders(history)] == [2, 4, 1, 0]


def test_no_time_for_all_leaves_ties_but_always_winner_and_baseline():
    history = history_of({0: 100.0, 1: 300.0, 2: 310.0, 3: 305.0})
    spec = spec_of()
    tight = plan(history, spec, seconds_left=1.0)
    assert tight.rounds[0] == (3, 1)
    assert len(tight.rounds) == FEWEST_ROUNDS
    assert set(tight.ties) == {2, 4}
    wide = plan(history, spec, seconds_left=10_000.0)
    assert len(wide.rounds) == MOST_ROUNDS
    assert wide.ties == ()
    assert wide.rounds[1] == tuple(reversed(wide.rounds[0]))


def test_a_run_is_at_least_twice_as_long_as_a_search_window():
    made = plan(history_of({0: 100.0}), spec_of(limits=limits_of(window_seconds=6.0)), None)
    assert made.window_seconds == 12.0


def test_the_plan_stays_inside_the_time_and_goes_on_where_it_was():
    history, spec, left = history_of({0: 100.0, 1: 300.0, 2: 310.0}), spec_of(), 200.0
    runs, order = list(history.runs), []
    while (step := next_confirmation(history_of({0: 100.0, 1: 300.0, 2: 310.0}, runs[3:]), spec, left)) is not None:
        order.append(step.trial_id)
        runs.append(run_of(step.trial_id, 100.0, 1000.0 + len(runs), "confirm", seconds=18.0))
        left -= 18.0
    assert left >= -18.0
    assert order[:6] == [3, 2, 1, 1, 2, 3]


def test_a_lost_machine_is_tried_again_and_not_for_ever():
    lost = [run_of(2, None, 1000.0 + turn, "confirm", outcome="infra") for turn in range(2)]
    step = next_confirmation(history_of({0: 100.0, 1: 300.0}, lost), spec_of(), None)
    assert step is not None
    assert (step.trial_id, step.attempt) == (2, 3)
    lost.append(run_of(2, None, 1100.0, "confirm", outcome="infra"))
    step = next_confirmation(history_of({0: 100.0, 1: 300.0}, lost), spec_of(), None)
    assert step is not None
    assert step.trial_id == 1


@pytest.mark.case("G25")
def test_the_next_moves_up_when_the_winner_is_thrown_out():
    runs = [run_of(3, None, 1000.0, "confirm", outcome="device_oom", cause="capacity")]
    history = history_of({0: 100.0, 1: 200.0, 2: 310.0}, runs)
    assert "device_oom/capacity" in demoted(history)[3]
    assert [each.number for each in contenders(history)] == [1, 0]


def crashes(number: int, texts: list[str], begin: float = 1000.0):
    return [
        run_of(number + 1, None, begin + 10 * turn, "confirm", outcome="crashed", evidence={"text": text})
        for turn, text in enumerate(texts)
    ]


SEGFAULT = "signal 11 (SIGSEGV)"


def test_a_crash_in_a_longer_run_teaches_nothing_and_is_run_again():
    history = history_of({0: 100.0, 1: 300.0}, crashes(1, [SEGFAULT, SEGFAULT]))
    assert demoted(history) == {}
    assert [each.number for each in contenders(history)] == [1, 0]
    step = next_confirmation(history, spec_of(), None)
    assert step is not None
    assert (step.trial_id, step.attempt) == (2, 3)


def test_crashes_alike_in_a_row_are_the_configurations_own():
    history = history_of({0: 100.0, 1: 200.0, 2: 310.0}, crashes(2, [SEGFAULT] * 3))
    assert "3 times in a row" in demoted(history)[3]
    assert SEGFAULT in demoted(history)[3]
    assert [each.number for each in contenders(history)] == [1, 0]


def test_crashes_that_differ_demote_nobody_but_the_next_moves_up():
    history = history_of({0: 100.0, 1: 200.0, 2: 310.0}, crashes(2, [SEGFAULT, "KeyError: 'x'", "no space left"]))
    assert demoted(history) == {}
    assert set(given_up(history)) == {3}
    assert [each.number for each in contenders(history)] == [1, 0]


@pytest.mark.parametrize("outcome", ["infra", "host_oom", "shm", "crashed"])
def test_a_baseline_that_fails_by_no_fault_of_its_own_is_waited_for_and_not_for_ever(outcome):
    winner = [run_of(2, 300.0, 1000.0 + 10 * turn, "confirm") for turn in range(2)]
    lost = [run_of(1, None, 2000.0 + 10 * turn, "confirm", outcome=outcome) for turn in range(3)]
    assert confirmation(history_of({0: 100.0, 1: 300.0}, [*winner, *lost[:2]])).best is None
    ended = confirmation(history_of({0: 100.0, 1: 300.0}, [*winner, *lost]))
    assert ended.best == 2
    assert ended.no_speedup is not None


def test_an_incomplete_round_leaves_one_story():
    """The machine slows down by half for a round that the winner misses: means and speed-up still agree."""
    runs = confirm_runs({0: [100.0, 50.0, 100.0], 1: [200.0, 100.0]})
    found = confirmation(history_of({0: 100.0, 1: 200.0}, runs))
    assert found.speedup is not None
    assert found.intervals[2].mean / found.intervals[1].mean == pytest.approx(found.speedup.ratio)
    assert found.intervals[1].low < found.intervals[1].mean < found.intervals[1].high


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(50, 200), min_size=2, max_size=5), min_size=2, max_size=4))
def test_whatever_rounds_are_missing_the_best_has_the_highest_mean(rates):
    found = confirmation(history_of(dict.fromkeys(range(len(rates)), 100.0), confirm_runs(dict(enumerate(rates)))))
    assert found.best is not None
    assert found.speedup is not None
    means = {key: known.mean for key, known in found.intervals.items()}
    assert max(means.values()) == pytest.approx(means[found.best])
    assert means[found.best] / means[1] == pytest.approx(found.speedup.ratio)


def test_a_peak_over_the_limit_in_the_confirmation_throws_out():
    runs = confirm_runs({0: [100.0, 100.0]})
    runs += [run_of(2, 300.0, 2000.0, "confirm", peak_memory_bytes=LIMIT + 1)]
    assert "the limit is" in demoted(history_of({0: 100.0, 1: 300.0}, runs))[2]


def test_a_cancelled_run_says_nothing_about_the_configuration():
    runs = [run_of(2, None, 1000.0, "confirm", outcome=outcome) for outcome in ("cancelled", "infra")]
    assert demoted(history_of({0: 100.0, 1: 300.0}, runs)) == {}


def test_drift_between_rounds_does_not_hide_a_difference():
    runs = confirm_runs({0: [100.0, 70.0, 85.0], 1: [110.0, 77.0, 93.5]})
    found = confirmation(history_of({0: 100.0, 1: 110.0}, runs))
    assert found.best == 2
    assert found.speedup is not None
    assert found.speedup.ratio == pytest.approx(1.1)
    assert found.speedup.verdict == "faster"
    assert found.intervals[2].low < 80 < 110 < found.intervals[2].high


def test_the_number_is_the_confirmations_and_not_the_lucky_searchs():
    runs = confirm_runs({0: [100.0, 100.0, 100.0], 1: [150.0, 150.0, 150.0]})
    found = confirmation(history_of({0: 100.0, 1: 400.0}, runs))
    assert found.intervals[2].mean == pytest.approx(150.0)
    assert found.speedup is not None
    assert found.speedup.ratio == pytest.approx(1.5)


def test_the_baseline_is_best_when_nothing_is_faster():
    runs = confirm_runs({0: [120.0, 121.0], 1: [100.0, 101.0]})
    found = confirmation(history_of({0: 118.0, 1: 130.0}, runs))
    assert found.best == 1
    assert found.speedup is not None
    assert (found.speedup.ratio, found.speedup.verdict) == (1.0, "tie")


@pytest.mark.parametrize("runs", [{}, {1: [300.0, 300.0]}, {0: [100.0, 100.0]}, {0: [100.0], 1: [300.0]}])
def test_nothing_is_best_before_winner_and_baseline_have_two_runs_each(runs):
    found = confirmation(history_of({0: 100.0, 1: 300.0}, confirm_runs(runs) if runs else ()))
    assert found.best in (None, 1 if runs == {0: [100.0, 100.0]} else None)


def test_unequal_rounds_are_compared_all_the_same():
    runs = confirm_runs({0: [100.0, 50.0, 100.0], 1: [200.0, 100.0]})
    found = confirmation(history_of({0: 100.0, 1: 200.0}, runs))
    assert found.speedup is not None
    assert found.speedup.ratio == pytest.approx(2.0)


def test_rounds_are_read_from_the_order_in_time():
    runs = confirm_runs({0: [1.0, 1.0], 1: [1.0, 1.0], 2: [1.0, 1.0]})
    assert [rounds_of(runs)[run.id] for run in runs] == [0, 0, 0, 1, 1, 1]


def test_equal_configurations_are_rarely_called_different():
    """The best of five equal ones at 3 % noise, 2 rounds: at most about one false difference in twenty studies."""
    import random

    wrong = 0
    for seed in range(200):
        chance = random.Random(seed)
        rates = {number: [100.0 * chance.lognormvariate(0, 0.03) for _ in range(2)] for number in range(5)}
        found = confirmation(history_of(dict.fromkeys(range(5), 100.0), confirm_runs(rates)))
        wrong += any(seen.verdict != "tie" for seen in found.against_best.values())
    assert wrong / 200 <= 0.12
