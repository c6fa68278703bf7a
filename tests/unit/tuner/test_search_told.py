from __future__ import annotations

import math
from typing import get_args

import pytest

from objectives.trial.outcome import Outcome
from tuner.search.told import FAILED, MEASURED, TEACHES, Told, told

LIMIT = 100
OTHERS = sorted(set(get_args(Outcome)) - MEASURED - TEACHES)


@pytest.mark.parametrize("outcome", sorted(MEASURED))
@pytest.mark.parametrize(("peak", "fits"), [(50, -0.5), (100, 0.0), (150, 0.5)])
def test_what_was_measured_is_told_as_it_is(outcome: str, peak: int, fits: float) -> None:
    assert told(outcome, 12.5, peak, LIMIT) == Told(state="COMPLETE", values=(12.5, float(peak)), fits=fits)


@pytest.mark.case("G15")
@pytest.mark.parametrize("outcome", sorted(TEACHES))
def test_a_failure_that_teaches_is_the_worst_value_and_does_not_fit(outcome: str) -> None:
    expected = Told(state="COMPLETE", values=(0.0, 100.0), fits=1.0)
    assert told(outcome, None, None, LIMIT) == told(outcome, 99.0, 3, LIMIT) == expected


@pytest.mark.parametrize("outcome", OTHERS)
def test_what_teaches_nothing_fails(outcome: str) -> None:
    assert told(outcome, 99.0, 3, LIMIT) == FAILED


def test_every_outcome_has_its_row() -> None:
    assert OTHERS == ["cancelled", "crashed", "host_oom", "infra", "shm"]


@pytest.mark.parametrize(
    ("throughput", "peak", "limit"),
    [(None, 50, LIMIT), (1.0, None, LIMIT), (math.nan, 50, LIMIT), (1.0, math.inf, LIMIT), (1.0, 50, None), (1, 5, 0)],
)
def test_a_missing_figure_is_never_told_as_a_value(
    throughput: float | None, peak: float | None, limit: int | None
) -> None:
    assert told("completed", throughput, peak, limit) == FAILED
