"""Small hand-made replay tables. No evidence of anything: real tables are recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.replay.grid import Table
from benchmarks.replay.row import Row

MIB = 2**20


def row_of(config: Mapping[str, Any], throughput: float | None = 100.0, peak_mib: float = 100, **values: Any) -> Row:
    made = {"outcome": "completed" if throughput else "device_oom", "seconds": 10.0, **values}
    return Row(config=config, throughput=throughput, peak_bytes=int(peak_mib * MIB), **made)


def table_of(rows: Iterable[Row], limit_mib: float = 1000, **values: Any) -> Table:
    made = {"name": "hand", "grid": "hand", "global_batch_size": 64, **values}
    return Table(rows=tuple(rows), limit_bytes=int(limit_mib * MIB), **made)


def batches(sizes: Iterable[int], fits: Callable[[int], bool], speed: Callable[[int], float] = float) -> Table:
    """A table of micro-batches alone; a misfit costs 3 s, a run 10 s; the baseline is the smallest."""
    listed = sorted(sizes)
    rows = [
        row_of({"micro_batch_size": size}, speed(size), peak_mib=size)
        if fits(size)
        else row_of({"micro_batch_size": size}, None, seconds=3.0)
        for size in listed
    ]
    return table_of(rows, baseline_knobs={"micro_batch_size": listed[0]}, global_batch_size=max(listed))


def knobs_grid(limit_mib: float = 500, predicted: bool = True, extra: Mapping[str, Any] | None = None) -> Table:
    """36 configurations of three knobs that Tightfit knows, with steps and repeats."""
    rows = []
    for size in (1, 2, 4, 8, 16, 32):
        for precision, faster in (("fp32", 1.0), ("bf16-mixed", 1.8)):
            for checkpointing, speed, act in (("none", 1.0, 30), ("selective", 0.9, 18), ("full", 0.7, 6)):
                peak = 50 + act * size
                throughput = 1000 * faster * speed * size / (size + 1)
                config = {"micro_batch_size": size, "precision": precision, "activation_checkpointing": checkpointing}
                rows.append(
                    row_of(
                        {**config, **(extra or {})}, throughput, peak, setup_seconds=2.0,
                        step_seconds=tuple(0.5 + 0.001 * (n % 3) for n in range(16)),
                        predicted_bytes=int((peak - 14) * MIB) if predicted else None,
                    )
                )  # fmt: skip
    baseline = {**rows[0].config, "micro_batch_size": 2}
    return table_of(rows, limit_mib, baseline_knobs=baseline)


def write_table(path: Path, table: Table, **head: Any) -> Path:
    """The table as a file."""
    first = {
        "table": table.name, "device": "cpu", "throughput_unit": table.unit, "memory_limit_bytes": table.limit_bytes,
        "global_batch_size": table.global_batch_size, "baseline": dict(table.baseline_knobs or {}) or None,
        "versions": {}, **head,
    }  # fmt: skip
    lines = [first, *(_json(row) for row in table.rows)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def _json(row: Row) -> dict[str, Any]:
    made = {
        "config": dict(row.config), "outcome": row.outcome, "throughput": row.throughput, "seconds": row.seconds,
        "peak_memory_bytes": row.peak_bytes, "predicted_peak_memory_bytes": row.predicted_bytes,
        "setup_seconds": row.setup_seconds, "step_seconds": list(row.step_seconds) or None,
        "runs": [{"throughput": run.throughput, "seconds": run.seconds} for run in row.runs] or None,
        "outcome_source": "cut" if row.cut else "measured",
    }  # fmt: skip
    return {name: value for name, value in made.items() if value is not None or name in ("throughput",)}
