"""Mistake 3, planted: a soak's child on real small workloads; a leak has its keeper's name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from longer_runs import run_body

from objectives.trial.kept_tensors import keeper_of_new, tensor_ids
from objectives.trial.soaking import run
from tuner.answer.soak import curves_of

TESTS = Path(__file__).parents[2]


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


def soaked_alone(kind: str) -> dict[str, Any]:
    """Ten seconds in a process of its own: growth hides in what this one's heap holds already."""
    code = (
        "import json, sys, torch; torch.set_num_threads(1)\n"
        "from longer_runs import run_body\n"
        "from objectives.trial.soaking import run\n"
        f"print(json.dumps(run_body(run, 'planted_growth:{kind}', {{'micro_batch_size': 2, 'accumulation_steps': 2}},"
        " {'seconds': 10.0}, purpose='soak', name='measurement')))"
    )
    paths = os.pathsep.join(map(str, (TESTS, TESTS.parent)))
    made = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    return dict(json.loads(made.stdout.splitlines()[-1]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "growth", "leak"),
    [
        ("KeepsLosses", {"grows"}, True),
        ("KeepsBatches", {"grows"}, True),
        ("GrowsInSteps", {"steps", "cannot_tell"}, False),
        ("Fills", {"saturates", "cannot_tell"}, False),
        ("Holes", {"flat", "saturates"}, False),
        ("KeepsNumbers", {"flat", "saturates"}, False),
    ],
)
def test_a_leak_is_told_from_everything_else(kind: str, growth: set[str], leak: bool) -> None:
    curves = curves_of(soaked_alone(kind))
    assert curves.held.kind in growth
    assert curves.leak is leak


def test_few_new_tensors_are_nobodys() -> None:
    assert keeper_of_new(tensor_ids()) is None
