"""Mistake 3, planted: a soak's child on real small workloads; a leak has its keeper's name."""

from __future__ import annotations

from typing import Any

import pytest
from longer_runs import run_body

from objectives.trial.kept_tensors import keeper_of_new, tensor_ids
from objectives.trial.soaking import run
from tuner.answer.soak import curves_of


def soaked(kind: str, seconds: float = 1.5, **answer: Any) -> dict[str, Any]:
    config = {"micro_batch_size": 2, "accumulation_steps": 2}
    return run_body(run, kind, config, {"seconds": seconds, **answer}, purpose="soak", name="measurement")


@pytest.mark.parametrize(
    ("kind", "name"), [("KeepsLosses", "losses"), pytest.param("KeepsBatches", "log", marks=pytest.mark.slow)]
)
def test_a_leak_is_named_with_what_keeps_it(kind: str, name: str) -> None:
    found = soaked(f"planted_growth:{kind}")
    assert found["kept"].endswith(f"named `{name}`")
    assert found["tensors"][1] > found["tensors"][0] + 50


@pytest.mark.parametrize(
    "kind", [pytest.param("planted_accumulation:Right", marks=pytest.mark.slow), "planted_growth:KeepsNumbers"]
)
def test_a_clean_twin_keeps_nothing(kind: str) -> None:
    found = soaked(kind)
    assert found["kept"] is None
    assert not curves_of(found).leak
    assert found["updates"] > 5
    assert found["evaluations"] >= 5
    assert found["peak_memory_bytes"] < 2**28


def test_a_remedy_runs_beside_it() -> None:
    found = soaked("planted_accumulation:Right", 1.0, empty_cache_every=5, small_threshold=True)
    assert found["units_per_second"] > 0
    assert len(found["series"]) > 10


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["KeepsLosses", "KeepsBatches"])
def test_a_leak_is_told_from_fragmentation(kind: str) -> None:
    assert curves_of(soaked(f"planted_growth:{kind}", 10.0)).leak


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "growth"), [("GrowsInSteps", "steps"), ("Holes", "flat"), ("KeepsNumbers", "flat"), ("Fills", "saturates")]
)
def test_what_does_not_leak_is_not_accused(kind: str, growth: str) -> None:
    curves = curves_of(soaked(f"planted_growth:{kind}", 10.0))
    assert not curves.leak
    assert curves.held.kind in (growth, "saturates", "cannot_tell")


def test_few_new_tensors_are_nobodys() -> None:
    assert keeper_of_new(tensor_ids()) is None
