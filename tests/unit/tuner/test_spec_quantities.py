"""Sizes, times and shares."""

from __future__ import annotations

import pytest

from tuner.cli import words
from tuner.spec.model import MemoryLimit
from tuner.spec.quantities import QuantityError, parse_memory, parse_seconds, parse_share, show_memory


@pytest.mark.case("E07")
def test_the_control_groups_90_gib_are_90_gib_in_every_spelling() -> None:
    limit = MemoryLimit(size_bytes=96636764160)
    assert parse_memory("90GiB") == parse_memory(96636764160) == parse_memory("92160 MiB") == limit
    assert show_memory(limit) == "90GiB"
    assert words.size(96636764160) == "90.00 GiB"


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("92%", MemoryLimit(share=0.92)),
        ("100 %", MemoryLimit(share=1.0)),
        ("0.5%", MemoryLimit(share=0.005)),
        ("40GB", MemoryLimit(size_bytes=40 * 10**9)),
        ("1.5 GiB", MemoryLimit(size_bytes=1610612736)),
        ("40gib", MemoryLimit(size_bytes=40 * 2**30)),
        ("1TiB", MemoryLimit(size_bytes=2**40)),
        (2**30, MemoryLimit(size_bytes=2**30)),
    ],
)
def test_sizes_and_shares(text: str | int, limit: MemoryLimit) -> None:
    assert parse_memory(text) == limit
    assert parse_memory(show_memory(limit)) == limit


@pytest.mark.parametrize(
    "wrong", [92, 0.92, "92", "0%", "101%", "-1GiB", "40 GX", "", "GiB", True, None, [1], "1e3GiB", "9" * 400, 10**30]
)
def test_what_is_no_memory_limit(wrong: object) -> None:
    with pytest.raises(QuantityError):
        parse_memory(wrong)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("20m", 1200), ("1h30m", 5400), ("1h 30m", 5400), ("2d", 172800), ("0.5s", 0.5), ("5 min", 300)],
)
def test_times(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    "wrong", [20, 20.0, "20", "", "m", "0s", "-5s", "1:30", "20 minutes later", True, None, "999d"]
)
def test_what_is_no_time(wrong: object) -> None:
    with pytest.raises(QuantityError):
        parse_seconds(wrong)


def test_shares() -> None:
    assert parse_share("1%") == 0.01
    assert parse_share("0%") == 0.0
    for wrong in (1, 0.01, "1", "200%", True):
        with pytest.raises(QuantityError):
            parse_share(wrong)
