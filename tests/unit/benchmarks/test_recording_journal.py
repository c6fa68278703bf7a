"""The memory of a recording without a store, and the rows it makes: those that the product exports of the same runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.recording.device_grids import DEVICE_GRIDS, device_grid_named
from benchmarks.recording.journal import Journal, as_run, done_runs, rows_of
from objectives.knobs.knob import Facts
from storage.records import RunRecord, TrialRecord
from tuner.export import table

AT = datetime(2026, 12, 1, tzinfo=UTC)
CONFIG = {"micro_batch_size": 2, "accumulation_steps": 4, "precision": "fp32"}
METHODS = frozenset({"checkpoint_blocks", "set_attention", "set_loss", "set_batching", "set_tokens", "lengths"})


def said(throughput: float) -> dict[str, Any]:
    return {
        "throughput": throughput,
        "throughput_unit": "tokens_per_second",
        "window_seconds": 4.0,
        "stall_seconds": 0.5,
        "compile": {"seconds": 2.0},
        "data_stall_share": 0.25,
        "step_seconds": [3.0, 5.0],
        "memory": {"peak_memory_bytes": 77},
    }


def entry(throughput: float, seconds: float, purpose: str = "search") -> dict[str, Any]:
    return {
        "kind": "run", "key": "k", "config": CONFIG, "cap_bytes": None, "purpose": purpose, "outcome": "completed",
        "cause": None, "throughput": throughput, "peak_memory_bytes": 77, "seconds": seconds,
        "measurement": said(throughput),
    }  # fmt: skip


def record(throughput: float, seconds: float, purpose: str = "search") -> RunRecord:
    return RunRecord(
        id=f"{purpose}{throughput}", study_id=1, trial_id=1, purpose=purpose, outcome="completed", started_at=AT,
        throughput=throughput, peak_memory_bytes=77, seconds=seconds, step_seconds=(3.0, 5.0),
        measurement=said(throughput),
    )  # fmt: skip


def test_a_row_is_what_the_product_exports_of_the_same_runs() -> None:
    trial = TrialRecord(
        id=1, study_id=1, number=0, config=CONFIG, config_key="k", source="grid", outcome="completed", created_at=AT,
        throughput=(100.0 * 110.0) ** 0.5, peak_memory_bytes=77, predicted_peak_memory_bytes=70,
    )  # fmt: skip
    theirs = table._row(trial, [record(100.0, 12.0), record(110.0, 11.0, "repeat")], None)
    ours = rows_of([entry(100.0, 12.0), entry(110.0, 11.0, "repeat")], {"k": 70})["k"]
    assert ours.pop("throughput") == pytest.approx(theirs.pop("throughput"))
    assert ours == theirs
    assert as_run([3.0, 5.0], 4.0) == table.as_run([3.0, 5.0], 4.0)


def test_a_misfit_has_neither_numbers_nor_runs() -> None:
    failed = {**entry(1.0, 3.0), "outcome": "device_oom", "throughput": None, "peak_memory_bytes": None}
    row = rows_of([failed], {})["k"]
    assert (row["outcome"], row["throughput"], row["peak_memory_bytes"], row["seconds"]) == (
        "device_oom",
        None,
        None,
        3.0,
    )
    assert "runs" not in row


def test_a_torn_line_was_never_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "journal.jsonl"
    Journal(path).append(entry(1.0, 2.0))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind": "ru')
    journal = Journal(path)
    assert len(journal.of_kind("run")) == 1
    journal.append({"kind": "facts", "device": "d"})
    assert path.read_bytes().startswith(whole)
    assert [len(Journal(path).of_kind(kind)) for kind in ("run", "facts")] == [1, 1]
    assert done_runs(Journal(path).of_kind("run"))[0].throughput == 1.0


@pytest.mark.parametrize("grid", DEVICE_GRIDS, ids=lambda grid: grid.name)
def test_each_device_grid_has_enough_configurations_and_its_baseline_first(grid: Any) -> None:
    facts = Facts(device_kind="cuda", capability=(9, 0), workload_methods=METHODS)
    configs = grid.configs(facts)
    assert len(configs) >= 60
    first = next(iter(configs.values()))
    assert all(getattr(first, name) == value for name, value in grid.baseline.items())
    assert {config.micro_batch_size * config.accumulation_steps for config in configs.values()} == {
        grid.global_batch_size
    }
    assert list(configs) == list(grid.configs(facts))
    assert [cap // 2**30 for cap in grid.caps] == [24, 40, 80]
    assert device_grid_named(grid.name) is grid
    with pytest.raises(LookupError, match="there are gpt2-124m"):
        device_grid_named("none")
