"""Which run a recording makes next, driven to the end on a made-up machine."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.recording.plan import BASELINE_EVERY, REPEATS, Done, Plan, Todo, decisive, front, next_run, noise

MIB = 2**20
KEYS = [f"c{number:02}" for number in range(40)]


def peak_of(key: str) -> int:
    return (100 + 10 * int(key[1:])) * MIB


def speed_of(key: str) -> float:
    """The largest are the fastest, up to c35; the last four are slow."""
    number = int(key[1:])
    return 1000.0 + 50 * number if number < 36 else 500.0


def run(todo: Todo, noise: Callable[[], float] = lambda: 1.0) -> Done:
    if todo.cap_bytes is not None and peak_of(todo.key) > todo.cap_bytes:
        return Done(key=todo.key, cap_bytes=todo.cap_bytes, outcome="device_oom")
    speed = speed_of(todo.key) * noise()
    return Done(key=todo.key, cap_bytes=todo.cap_bytes, throughput=speed, peak_memory_bytes=peak_of(todo.key))


def drive(done: Sequence[Done] = (), *, runner: Callable[[Todo], Done] = run, limit: int = 2000) -> list[Done]:
    made = list(done)
    while (todo := next_run(Plan(keys=KEYS, done=made))) is not None:
        made.append(runner(todo))
        assert len(made) < limit
    return made


def test_every_configuration_is_run_once_before_anything_is_repeated_but_the_baseline() -> None:
    keys = [run.key for run in drive()]
    complete = next(place for place in range(len(keys)) if set(keys[: place + 1]) == set(KEYS))
    counts = Counter(keys[: complete + 1])
    assert {key for key, count in counts.items() if count > 1} == {KEYS[0]}
    assert counts[KEYS[0]] == 1 + (len(KEYS) - 1) // BASELINE_EVERY


def test_what_decides_has_its_repeats_and_nothing_else_has() -> None:
    made = drive()
    counts = Counter(run.key for run in made if run.cap_bytes is None)
    deciding = set(decisive(Plan(keys=KEYS, done=made)))
    assert all(counts[key] >= 1 + REPEATS for key in deciding)
    assert all(counts[key] == 1 for key in set(KEYS) - deciding)
    assert {f"c{number}" for number in range(36, 40)} & deciding == set()


def test_repeats_come_in_rounds() -> None:
    made = [run.key for run in drive() if run.cap_bytes is None]
    for key in set(made) - {KEYS[0]}:
        places = [place for place, each in enumerate(made) if each == key]
        assert all(b - a > 1 for a, b in itertools.pairwise(places))


def test_each_cap_has_real_runs_on_both_sides() -> None:
    made = drive()
    caps = {run.cap_bytes for run in made} - {None}
    assert 2 <= len(caps) <= 3
    for cap in caps:
        outcomes = Counter(run.outcome for run in made if run.cap_bytes == cap)
        assert outcomes["completed"] >= 4
        assert outcomes["device_oom"] >= 4
        misfits = sum(peak_of(key) > cap for key in KEYS) / len(KEYS)
        assert 0.15 <= misfits <= 0.60


def test_the_best_under_each_cap_is_repeated_too() -> None:
    made = drive()
    plan = Plan(keys=KEYS, done=made)
    for cap in plan.memory_caps:
        best = max((key for key in KEYS if peak_of(key) <= cap), key=speed_of)
        assert len(plan.uncut[best]) >= 1 + REPEATS


@settings(max_examples=20, deadline=None)
@given(stop=st.integers(0, 250), seed=st.integers(0, 9))
def test_a_recording_killed_anywhere_goes_on_to_a_complete_table(stop: int, seed: int) -> None:
    numbers = random.Random(seed)

    def shaky(todo: Todo) -> Done:
        return run(todo, lambda: math.exp(numbers.gauss(0, 0.03)))

    whole = drive(runner=shaky)
    resumed = drive(whole[:stop], runner=shaky)
    assert {each.key for each in resumed if each.cap_bytes is None} == set(KEYS)
    assert next_run(Plan(keys=KEYS, done=resumed)) is None
    assert len(resumed) == len(set(range(len(resumed))))


def test_a_configuration_that_fails_is_neither_repeated_nor_run_again() -> None:
    def broken(todo: Todo) -> Done:
        return Done(key=todo.key, outcome="unsupported") if todo.key == "c35" else run(todo)

    counts = Counter(each.key for each in drive(runner=broken))
    assert counts["c35"] == 1


def test_a_baseline_that_cannot_run_does_not_stop_the_recording() -> None:
    def broken(todo: Todo) -> Done:
        return Done(key=todo.key, outcome="device_oom") if todo.key == KEYS[0] else run(todo)

    assert {each.key for each in drive(runner=broken)} == set(KEYS)


def test_given_caps_are_taken() -> None:
    plan = Plan(keys=KEYS, done=[], caps=(24, 40))
    assert plan.memory_caps == (24, 40)


def test_the_front_holds_what_nothing_beats() -> None:
    means = {"a": 3.0, "b": 2.0, "c": 1.0, "d": 1.5}
    assert front(means, {"a": 30, "b": 20, "c": 10, "d": 25}) == ["a", "b", "c"]


def test_noise_is_pooled_over_what_was_repeated() -> None:
    made = noise([[100.0, 104.0], [50.0], [10.0, 10.0, 10.0]])
    assert made.freedom == 3
    assert made.relative == pytest.approx(math.sqrt(math.log(1.04) ** 2 / 2 / 3), rel=1e-9)
    assert made.standard_error == pytest.approx((made.relative or 0) / math.sqrt(2.5))
    assert noise([[1.0]]).standard_error is None
