"""Numbers as people read them."""

from __future__ import annotations

from typing import Any

import pytest

from objectives.config import TrainingConfig
from tuner.cli import words


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "-"), (0, "0 MiB"), (50 * 2**20, "50 MiB"), (2**30, "1.00 GiB"), (141 * 2**30, "141.0 GiB"),
     (2**40, "1.00 TiB")],
)  # fmt: skip
def test_sizes_are_gib(count: int | None, text: str) -> None:
    assert words.size(count) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00"), (4.321, "4.32"), (43.21, "43.2"), (999.4, "999"), (999.6, "1.00k"), (3421, "3.42k"),
     (12_345, "12.3k"), (123_456, "123k"), (1_250_000, "1.25M"), (2e9, "2.00G")],
)  # fmt: skip
def test_rates_are_readable_thousands(value: float, text: str) -> None:
    assert words.number(value) == text
    assert words.rate(value, "tokens_per_second") == f"{text} tokens/s"


def test_a_missing_rate_is_not_zero() -> None:
    assert words.rate(None, "tokens_per_second") == "-"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (-3, "0 s"),
        (12.4, "12 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert words.duration(seconds) == text


def test_intervals() -> None:
    assert words.interval([1150, 1260]) == "[1.15k, 1.26k]"
    assert words.interval(None) == words.interval([None, None]) == ""


def test_a_configuration_is_what_differs() -> None:
    base = TrainingConfig(accumulation_steps=8).to_mapping()
    other = TrainingConfig(micro_batch_size=8, pin_memory=True).to_mapping()
    assert words.knobs(other, base) == "micro_batch_size 8, pin_memory true"
    assert words.knobs(base, base) == ""


@pytest.mark.parametrize(
    ("progress", "unit", "line"),
    [
        (None, "tokens_per_second", "starting"),
        ({}, None, "running"),
        ({"phase": "worst_case", "steps": 0, "units_per_second": None}, None, "worst case"),
        ({"phase": "measure", "steps": 12, "units_per_second": 3420.0}, "tokens_per_second",
         "measure, step 12, 3.42k tokens/s"),
        ({"phase": "measure", "steps": 1, "units_per_second": 8.0}, None, "measure, step 1, 8.00 units per second"),
    ],
)  # fmt: skip
def test_phase_steps_and_rate_in_one_line(progress: Any, unit: str | None, line: str) -> None:
    assert words.doing(progress, unit) == line
