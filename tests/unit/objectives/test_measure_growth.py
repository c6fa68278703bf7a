"""Growth curves: recorded ones from real small workloads on a CPU, and made ones whose truth is known."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from objectives.measure.growth import fit_growth, is_leak
from objectives.measure.held import held_by_process
from tuner.answer.soak import curves_of, paced

RECORDINGS = Path(__file__).parents[2] / "recordings" / "growth"
MIB = 2**20
KINDS = {
    "flat": {"flat"},
    "flat_with_a_log_of_numbers": {"flat"},
    "saturating": {"saturates"},
    "saturating_early": {"saturates", "flat", "grows"},  # resident memory creeps on by 1 MiB in 10 s
    "leak_of_losses": {"grows"},
    "leak_of_outputs": {"grows"},
    "steps": {"steps"},
    "holes": {"flat", "saturates"},
}


def recorded(name: str) -> list[dict[str, Any]]:
    lines = (RECORDINGS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[1:]]


@pytest.mark.parametrize("figure", ["reserved_bytes", "allocated_bytes"])
@pytest.mark.parametrize("name", sorted(KINDS))
def test_the_interval_covers_what_the_rest_of_a_recording_does_or_nobody_can_tell(name: str, figure: str) -> None:
    """Fitted on the first six tenths; compared with the rate from there to the end."""
    rows = recorded(name)
    times, values = paced(rows), [row[figure] for row in rows]
    cut = int(0.6 * len(rows))
    said = fit_growth(times[:cut], values[:cut])
    later = median(values[-10:]) - median(values[cut - 5 : cut + 5])
    rate = 3600 * later / (times[-5] - times[cut])
    assert said.interval is None or said.interval[0] <= rate <= said.interval[1], (said, rate)
    assert said.kind not in ("steps", "cannot_tell") or not said.extrapolates


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_recording_is_called_what_it_is(name: str) -> None:
    rows = recorded(name)
    assert fit_growth(paced(rows), [row["reserved_bytes"] for row in rows]).kind in KINDS[name]


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_leak_is_told_from_everything_else(name: str) -> None:
    curves = curves_of({"series": recorded(name)})
    assert curves.leak == name.startswith("leak")


SHAPES: dict[str, Callable[[float], float]] = {
    "flat": lambda _time: 500.0,
    "leak": lambda time: 500 + 0.5 * time,
    "slow": lambda time: 500 + 0.02 * time,
    "saturating": lambda time: 500 + 80 * (1 - math.exp(-time / 60)),
    "steps": lambda time: 500.0 + 30 * (time > 70) + 30 * (time > 160),
    "late": lambda time: 500.0 + max(0.0, time - 150),
}


def made(shape: str, noise: float, correlation: float, seed: int) -> tuple[list[float], list[float]]:
    chance, error, values = random.Random(seed), 0.0, []
    times = [float(second) for second in range(200)]
    for time in times:
        error = correlation * error + chance.gauss(0, noise * math.sqrt(1 - correlation**2))
        values.append(MIB * (SHAPES[shape](time) + error))
    return times, values


@pytest.mark.parametrize(("noise", "correlation"), [(0.2, 0.3), (3.0, 0.6)])
@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_the_interval_covers_the_truth_in_nineteen_of_twenty(shape: str, noise: float, correlation: float) -> None:
    covered = said = 0
    rate = 3600 * MIB * (SHAPES[shape](260) - SHAPES[shape](200)) / 60
    for seed in range(25):
        found = fit_growth(*made(shape, noise, correlation, seed))
        if found.interval is not None:
            said += 1
            covered += found.interval[0] <= rate <= found.interval[1]
    assert covered >= 0.92 * said


@pytest.mark.parametrize(
    ("shape", "kind"),
    [("flat", "flat"), ("leak", "grows"), ("saturating", "saturates"), ("steps", "steps"), ("late", "cannot_tell")],
)
def test_a_clear_shape_has_its_name(shape: str, kind: str) -> None:
    seen = Counter(fit_growth(*made(shape, 0.2, 0.3, seed)).kind for seed in range(10))
    assert seen == {kind: 10}


def test_noise_is_no_growth_and_too_few_readings_say_nothing() -> None:
    assert {fit_growth(*made("flat", 15, 0.8, seed)).kind for seed in range(20)} == {"cannot_tell"}
    assert fit_growth([0, 1, 2], [1, 2, 3]).kind == "cannot_tell"
    assert fit_growth([], []).kind == "cannot_tell"


def test_many_even_steps_are_a_ramp() -> None:
    times = [float(second) for second in range(300)]
    values = [MIB * (500.0 + 2 * (second // 10)) for second in range(300)]
    found = fit_growth(times, values)
    assert found.kind == "grows"
    assert found.interval is not None
    assert found.interval[0] <= 3600 * 0.2 * MIB <= found.interval[1]


def test_fragmentation_is_no_leak() -> None:
    times, held = made("leak", 0.2, 0.3, 0)
    _, live = made("flat", 0.2, 0.3, 1)
    assert not is_leak(fit_growth(times, live), fit_growth(times, held))
    assert is_leak(fit_growth(times, held), fit_growth(times, held))


def test_this_process_says_what_it_holds_and_what_is_in_use() -> None:
    import torch

    before = held_by_process()
    kept = torch.ones(16 * MIB)
    after = held_by_process()
    assert before.allocated_bytes is not None
    assert after.allocated_bytes is not None
    assert 60 * MIB < after.allocated_bytes - before.allocated_bytes < 70 * MIB
    assert kept.sum() > 0
    assert after.reserved_bytes is not None
    assert after.reserved_bytes > 64 * MIB
