"""The statistics under every interval: against SciPy, against known processes, and never NaN."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from objectives.measure.series import (
    batch_means,
    change_to_faster,
    correlation,
    error_of_mean,
    inflation,
    quantile,
    student_t,
    variance,
)

UNHURRIED = settings(deadline=None, max_examples=60)

POSITIVE = st.floats(min_value=1e-6, max_value=1e6)


def autoregressive(count: int, *, variation: float, r: float, seed: int) -> list[float]:
    rng = random.Random(seed)
    x, values = rng.gauss(0, 1), []
    for _ in range(count):
        values.append(math.exp(variation * x))
        x = r * x + math.sqrt(1 - r * r) * rng.gauss(0, 1)
    return values


@pytest.mark.parametrize("probability", [0.975, 0.995, 0.9975, 0.999])
@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 7, 10, 19, 30, 100, 1000])
def test_student_t_agrees_with_scipy(probability: float, degrees: int) -> None:
    assert student_t(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), rel=2e-3)


def test_fractional_degrees_are_rounded_down_to_the_safe_side() -> None:
    assert student_t(0.975, 3.9) == student_t(0.975, 3)
    assert student_t(0.975, 0.2) == student_t(0.975, 1)


def test_quantile_interpolates_like_the_textbook() -> None:
    assert quantile([4, 1, 3, 2], 0.5) == 2.5
    assert quantile([7], 0.95) == 7
    assert quantile(list(range(101)), 0.95) == pytest.approx(95)


def test_correlation_sees_what_is_there() -> None:
    alike = autoregressive(400, variation=0.1, r=0.8, seed=1)
    apart = autoregressive(400, variation=0.1, r=0.0, seed=1)
    assert correlation(alike) == pytest.approx(0.8, abs=0.1)
    assert correlation(apart) < 0.15
    assert correlation([1.0, 2.0] * 50) == 0.0  # alternating: never a reason to claim more than independence
    assert inflation(alike) > 5 > 1.5 > inflation(apart)


def test_constant_series_have_no_error() -> None:
    assert error_of_mean([3.0] * 50) == (0.0, 19.0)
    assert variance([5.0]) == 0.0


def test_one_value_says_nothing_about_its_error() -> None:
    assert error_of_mean([1.0]) is None
    assert error_of_mean([]) is None


def test_a_correlated_series_gets_a_larger_error_than_its_plain_standard_error() -> None:
    values = autoregressive(200, variation=0.1, r=0.8, seed=3)
    error = error_of_mean(values)
    assert error is not None
    assert error[0] > 1.8 * math.sqrt(variance(values) / len(values))


@UNHURRIED
@given(st.lists(POSITIVE, min_size=1, max_size=120), st.integers(1, 30))
def test_batch_means_use_every_value_once(values: list[float], batches: int) -> None:
    batches = min(batches, len(values))
    means = batch_means(values, batches)
    assert len(means) == batches
    assert min(values) * (1 - 1e-9) <= min(means) <= max(means) <= max(values) * (1 + 1e-9)


@UNHURRIED
@given(st.lists(POSITIVE, min_size=2, max_size=120))
def test_errors_are_finite_whatever_comes(values: list[float]) -> None:
    error = error_of_mean(values)
    assert error is not None
    assert math.isfinite(error[0])
    assert error[0] >= 0
    assert error[1] >= 1


def test_a_shift_is_found_where_it_is_and_noise_is_left_alone() -> None:
    slow_then_fast = [1.3 * v for v in autoregressive(20, variation=0.03, r=0.3, seed=4)]
    slow_then_fast += autoregressive(60, variation=0.03, r=0.3, seed=5)
    assert change_to_faster(slow_then_fast) == pytest.approx(20, abs=1)
    eaten = [change_to_faster(autoregressive(60, variation=0.2, r=0.8, seed=seed)) for seed in range(100)]
    assert sum(map(bool, eaten)) <= 8


def test_becoming_slower_is_no_warm_up() -> None:
    assert change_to_faster([1.0] * 20 + [2.0] * 60) == 0
