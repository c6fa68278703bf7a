"""Where a grid is cut, and what a cut table says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.recording.cuts import FEWEST_MISFITS, MOST_MISFITS, choose_caps, cut_rows, next_at_edge
from benchmarks.recording.grids import GRIDS, grid_named
from benchmarks.recording.tables import cap_name, row_key, write_tables

MIB = 2**20


def row(micro: int, peak: int | None, throughput: float | None = 10.0, **more: Any) -> dict[str, Any]:
    return {
        "config": {"micro_batch_size": micro, "accumulation_steps": 64 // micro},
        "outcome": "completed" if throughput else "device_oom",
        "throughput": throughput,
        "peak_memory_bytes": peak,
        "seconds": 2.0,
        "outcome_source": "measured",
        **more,
    }


@given(st.lists(st.integers(1, 4000), min_size=20, max_size=100, unique=True))
def test_every_cap_leaves_the_baseline_and_enough_of_both(sizes: list[int]) -> None:
    peaks = [size * MIB for size in sizes]
    for cap in choose_caps(peaks, must_fit=min(peaks)):
        share = sum(peak > cap for peak in peaks) / len(peaks)
        assert FEWEST_MISFITS <= share <= MOST_MISFITS
        assert cap % MIB == 0
        assert cap >= min(peaks)


def test_a_cap_stands_in_the_widest_gap_near_its_share() -> None:
    peaks = [100 * MIB + 3 * MIB * number for number in range(16)] + [200 * MIB, 204 * MIB, 208 * MIB, 212 * MIB]
    assert 172 * MIB in choose_caps(peaks, must_fit=100 * MIB)


def test_a_baseline_that_needs_most_leaves_no_cap() -> None:
    assert choose_caps([number * 10 * MIB for number in range(1, 40)], must_fit=500 * MIB) == ()


def test_an_edge_goes_outwards_until_both_sides_are_known() -> None:
    peaks = {f"{number}": number * 10 * MIB for number in range(20)}
    outcomes: dict[str, str] = {}
    while (key := next_at_edge(peaks, 95 * MIB, outcomes)) is not None:
        outcomes[key] = "device_oom" if peaks[key] > 115 * MIB else "completed"  # two that should not fit do
    assert sorted(map(int, outcomes)) == [6, 7, 8, 9, 10, 11, 12, 13, 14, 15]


def test_one_that_fits_among_those_that_do_not_proves_nothing() -> None:
    peaks = {f"{number}": number * 10 * MIB for number in range(20)}
    outcomes: dict[str, str] = {}
    while (key := next_at_edge(peaks, 95 * MIB, outcomes)) is not None:
        outcomes[key] = "device_oom" if peaks[key] > 95 * MIB or int(key) in (4, 6) else "completed"
    assert sorted(map(int, outcomes)) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]


def test_everything_right_below_a_cap_is_really_run() -> None:
    peaks = {f"{number}": (100 + number) * MIB for number in range(20)}
    outcomes: dict[str, str] = {}
    while (key := next_at_edge(peaks, 118 * MIB, outcomes)) is not None:
        outcomes[key] = "device_oom" if peaks[key] > 118 * MIB else "completed"
    assert {int(key) for key in outcomes} >= set(range(3, 20))


def test_an_edge_without_misfits_ends() -> None:
    assert next_at_edge({"a": 1}, 5, {"a": "completed"}) is None


def test_rows_under_a_cap() -> None:
    rows = {
        "fits": row(1, 10),
        "real": row(2, 19, runs=[{"throughput": 9.0, "seconds": 2.0}]),
        "misfit": row(4, 40, predicted_peak_memory_bytes=38, runs=[{"throughput": 9.0, "seconds": 2.0}]),
        "real misfit": row(8, 21),
        "failed before": row(16, None, None),
    }
    real = {
        "real": row(2, 18, 12.0, seconds=3.0),
        "real misfit": row(8, None, None, seconds=0.5),
        "another": row(32, None, None, seconds=0.7),
    }
    made = dict(zip(rows, cut_rows(rows, 20, real), strict=True))
    assert made["fits"] == {**rows["fits"], "outcome_source": "cut"}
    assert made["real"]["outcome_source"] == "measured"
    assert (made["real"]["throughput"], made["real"]["peak_memory_bytes"], made["real"]["seconds"]) == (10.0, 18, 3.0)
    assert (made["misfit"]["outcome"], made["misfit"]["seconds"]) == ("device_oom", 0.6)
    assert made["misfit"]["predicted_peak_memory_bytes"] == 38
    assert made["misfit"]["throughput"] is None
    assert "runs" not in made["misfit"]
    assert (made["real misfit"]["outcome"], made["real misfit"]["seconds"]) == ("device_oom", 0.5)
    assert made["failed before"]["outcome"] == "device_oom"


def test_the_tables_of_a_grid_are_written_with_their_noise(tmp_path: Path) -> None:
    runs = [{"throughput": value, "seconds": 2.0} for value in (9.0, 10.0, 11.0)]
    rows = [row(1, 10 * MIB, runs=runs), row(2, 30 * MIB, runs=runs[:1])]
    paths = write_tables(tmp_path, {"table": "g", "memory_limit_bytes": 99}, rows, {20 * MIB: {}})
    assert [path.name for path in paths] == ["g.jsonl", "g@20MiB.jsonl"]
    uncut, cut = ([json.loads(line) for line in path.read_text().splitlines()] for path in paths)
    assert (uncut[0]["grid"], cut[0]["grid"], cut[0]["table"]) == ("g", "g", "g@20MiB")
    assert (uncut[0]["memory_limit_bytes"], cut[0]["memory_limit_bytes"]) == (99, 20 * MIB)
    spread = uncut[0]["noise"]["relative_standard_deviation"]
    assert spread == pytest.approx(0.1, rel=0.02)
    assert uncut[1]["throughput_standard_error"] == pytest.approx(10 * spread / 3**0.5)
    assert uncut[2]["throughput_standard_error"] == pytest.approx(10 * spread)
    assert cut[2]["outcome"] == "device_oom"
    assert list(tmp_path.glob("*.new")) == []


def test_names_of_caps() -> None:
    assert [cap_name(24 * 2**30), cap_name(160 * MIB)] == ["24GiB", "160MiB"]


def test_the_key_of_a_row_is_its_configurations() -> None:
    assert row_key(row(1, 1)) != row_key(row(2, 1))


def test_each_grid_has_a_spec_and_both_sets_have_three() -> None:
    for kind in ("dev", "eval"):
        mine = [grid for grid in GRIDS if grid.set == kind]
        assert len(mine) >= 3
        assert all(grid.spec_file.is_file() for grid in mine)
        assert any(grid.cores > 1 for grid in mine)
    with pytest.raises(LookupError, match="there are llama-dev"):
        grid_named("none")
