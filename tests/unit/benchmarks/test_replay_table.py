from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from replay_tables import MIB, knobs_grid, row_of, table_of, write_table

from benchmarks.replay.row import Run
from benchmarks.replay.table import TableError, read

HEAD = {"table": "t@1GiB", "memory_limit_bytes": 1000, "baseline": {"micro_batch_size": 1}}
ROW = {"config": {"micro_batch_size": 1}, "outcome": "completed", "throughput": 5.0, "seconds": 2.0}


def written(tmp_path: Path, *lines: object) -> Path:
    file = tmp_path / "t.jsonl"
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    file.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return file


def test_what_is_written_is_read(tmp_path: Path) -> None:
    table = knobs_grid()
    back = read(write_table(tmp_path / "t.jsonl", table))
    assert {row.key: (row.throughput, row.peak_bytes, row.step_seconds) for row in back.rows} == {
        row.key: (row.throughput, row.peak_bytes, row.step_seconds) for row in table.rows
    }
    assert back.baseline.key == table.baseline.key


def test_every_optional_field_may_be_absent_and_a_knob_unknown(tmp_path: Path) -> None:
    row = {
        "config": {"micro_batch_size": 1, "frobnicate": "yes"},
        "outcome": "completed",
        "throughput": 5,
        "seconds": 2,
    }
    table = read(written(tmp_path, {"table": "bare"}, row))
    assert table.limit_bytes is None
    assert table.best.config["frobnicate"] == "yes"
    assert (table.best.runs, table.best.step_seconds, table.best.predicted_bytes) == ((), (), None)
    assert table.baseline.key == table.best.key
    assert table.tolerance == 0.01


def test_accumulation_is_no_knob(tmp_path: Path) -> None:
    row = ROW | {"config": {"micro_batch_size": 1, "accumulation_steps": 8}}
    assert read(written(tmp_path, HEAD, row)).knobs == ("micro_batch_size",)


def test_cuts_of_one_grid_share_its_name(tmp_path: Path) -> None:
    assert read(written(tmp_path, HEAD, ROW)).grid == "t"
    assert read(written(tmp_path, HEAD | {"grid": "g"}, ROW)).grid == "g"


@pytest.mark.parametrize(
    ("lines", "line", "words"),
    [
        ([HEAD, ROW, "{not json"], 3, "not JSON"),
        ([HEAD, "[1]"], 2, "list instead of a JSON object"),
        ([{"device": "cpu"}, ROW], 1, '"table"'),
        ([HEAD], 1, "no row"),
        ([HEAD, ROW, ROW], 3, "line 2 again"),
        ([HEAD, {"config": {"a": 1}, "outcome": "completed", "throughput": 5}], 2, "'seconds' is missing"),
        ([HEAD, ROW | {"seconds": -1}], 2, "'seconds' is -1"),
        ([HEAD, ROW | {"seconds": "long"}], 2, "'seconds' is 'long'"),
        ([HEAD, ROW | {"throughput": True}], 2, "'throughput' is True"),
        ([HEAD, ROW | {"throughput": None}], 2, '"throughput" above 0'),
        ([HEAD, ROW | {"config": {}}], 2, "'config' is {}"),
        ([HEAD, ROW | {"config": {"a": [1]}}], 2, "knob 'a'"),
        ([HEAD, {"config": {"a": 1}, "seconds": 1}], 2, '"outcome" is missing'),
        ([HEAD, ROW | {"runs": 3}], 2, '"runs" is a list'),
        ([HEAD, ROW | {"step_seconds": ["x"]}], 2, '"step_seconds" is a list'),
        ([HEAD | {"memory_limit_bytes": 0}, ROW], 1, "'memory_limit_bytes' is 0"),
    ],
)
def test_a_broken_table_is_refused_with_file_line_and_reason(
    tmp_path: Path, lines: list[object], line: int, words: str
) -> None:
    file = written(tmp_path, *lines)
    with pytest.raises(TableError) as refused:
        read(file)
    assert str(refused.value).startswith(f"{file}, line {line}: ")
    assert words in str(refused.value)


def test_files_without_anything_to_find_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="empty"):
        read(written(tmp_path))
    with pytest.raises(TableError, match="cannot be read"):
        read(tmp_path / "none.jsonl")
    with pytest.raises(TableError, match="nothing to find"):
        read(written(tmp_path, HEAD, ROW | {"peak_memory_bytes": 2000}))


def test_a_row_over_the_limit_is_a_misfit_at_the_median_cost_of_the_measured_ones() -> None:
    rows = [row_of({"a": n}, 100.0 + n, peak_mib=10 * n) for n in range(1, 6)]
    failed = [row_of({"b": n}, None, seconds=n) for n in (2.0, 3.0, 30.0)]
    table = table_of([*rows, *failed, row_of({"b": 99}, None, seconds=77.0, cut=True)], limit_mib=35)
    assert [row.config["a"] for row in table.feasible] == [3, 2, 1]
    assert table.cost(rows[4]) == 3.0
    assert table.cost(failed[2]) == 30.0
    assert table_of(rows, limit_mib=35).cost(rows[4]) == 10.0


def test_found_means_the_larger_of_one_per_cent_and_twice_the_standard_error() -> None:
    quiet, noisy = (
        table_of([
            row_of({"a": 1}, 100.0, runs=tuple(Run(throughput=100 * math.exp(e)) for e in (-spread, 0, spread))),
            row_of({"a": 2}, 98.5),
        ])
        for spread in (0.001, 0.05)
    )  # fmt: skip
    assert quiet.tolerance == 0.01
    assert not quiet.is_hit(quiet.rows[1])
    assert noisy.run_spread == pytest.approx(0.05)
    assert noisy.repeats == 1  # the rows within 10 % have 3 and 0 runs
    assert noisy.tolerance == pytest.approx(2 * 0.05)
    assert noisy.is_hit(noisy.rows[1])


def test_regret_counts_an_answer_over_the_limit_as_none() -> None:
    table = table_of([row_of({"a": 1}, 100.0), row_of({"a": 2}, 80.0), row_of({"a": 3}, 200.0, peak_mib=2000)])
    assert [table.regret(row) for row in (*table.rows, None)] == [0.0, pytest.approx(0.2), 1.0, 1.0]


def test_a_baseline_that_does_not_fit_gives_way_to_the_middle_of_what_does() -> None:
    rows = [row_of({"a": n}, 100.0 * n, peak_mib=100 * n) for n in range(1, 6)]
    assert table_of(rows, limit_mib=350, baseline_knobs={"a": 5}).baseline.config["a"] == 2
    assert table_of(rows, limit_mib=350, baseline_knobs={"a": 1}).baseline.config["a"] == 1


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        ("NVIDIA H200", "cuda"),
        ("a100-80", "cuda"),
        ("Intel Xeon", "cpu"),
        ("cpu", "cpu"),
        ("", "cpu"),
        ("GB200", "cuda"),
    ],
)
def test_the_device_s_name_tells_its_kind(device: str, kind: str) -> None:
    assert table_of([row_of({"a": 1})], device=device).device_kind == kind


def test_sizes_are_bytes() -> None:
    assert table_of([row_of({"a": 1}, peak_mib=2)]).rows[0].peak_bytes == 2 * MIB
