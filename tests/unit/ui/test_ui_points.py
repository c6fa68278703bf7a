"""Trials in columns: what is measured, feasible, searched; equal looks have equal names."""

from __future__ import annotations

import numpy as np
from pictures import GIB, row, some

from ui.points import points_of


def test_columns_keep_numbers_and_missing_figures_are_nan() -> None:
    points = some()
    assert len(points) == 7
    assert points.numbers == tuple(range(7))
    assert np.isnan(points.throughput[5])
    assert points.at[3] == 3
    assert points.unit == "tokens_per_second"


def test_what_is_measured_and_what_fits() -> None:
    points = some()
    assert np.flatnonzero(points.measured()).tolist() == [0, 1, 2, 3, 4]
    assert np.flatnonzero(points.feasible(8 * GIB)).tolist() == [0, 1, 2, 3]
    assert points.feasible(None).sum() == 5


def test_the_confirmation_counts_before_the_search() -> None:
    points = points_of([row(0, 100.0, 1.0, confirmed=True, confirmed_throughput=90.0), row(1, 50.0, 1.0)])
    assert points.throughput.tolist() == [90.0, 50.0]


def test_searched_knobs_are_those_that_differ_without_what_follows() -> None:
    assert some().searched == ("micro_batch_size", "precision")


def test_values_are_numbers_by_size_and_words_as_they_come() -> None:
    points = some()
    assert points.values("micro_batch_size") == (1, 2, 4, 8)
    assert points.values("precision") == ("fp32", "bf16-mixed")


def test_booleans_are_no_numbers() -> None:
    points = points_of([row(0, config={"pin_memory": True}), row(1, config={"pin_memory": False})])
    assert points.values("pin_memory") == (True, False)


def test_an_empty_study_has_empty_columns() -> None:
    points = points_of([])
    assert len(points) == 0
    assert points.counts == {}
    assert points.searched == ()
    assert points.measured().sum() == 0


def test_the_fingerprint_is_that_of_what_is_shown() -> None:
    assert some().fingerprint == some().fingerprint
    assert points_of([row(0, 1.0, 1.0)]).fingerprint != points_of([row(0, 2.0, 1.0)]).fingerprint
    assert points_of([row(0, 1.0, 1.0)]).fingerprint != points_of([row(0, 1.0, 1.0, outcome="pruned")]).fingerprint
