"""Runs of a grid as JSON lines, appended as they end: the memory of a recording without a store. Torch-free."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks.recording.cuts import Row
from benchmarks.recording.plan import Done

Entry = Mapping[str, Any]
"""``kind`` says what it is: ``facts``, ``prediction`` or ``run``."""


class Journal:
    """The entries of one grid. A last line that was cut off by a crash counts as never written.

    Args:
        path: The file; made with its folder by the first entry.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines if line.endswith(b"\n")]
        self._size = sum(map(len, whole))
        self._entries: list[Entry] = [json.loads(line) for line in whole]

    def of_kind(self, kind: str) -> list[Entry]:
        """Entries of a kind, in the order in which they were written."""
        return [entry for entry in self._entries if entry["kind"] == kind]

    def append(self, entry: Entry) -> None:
        """Writes one entry, through to the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(entry, allow_nan=False).encode() + b"\n"
        with self.path.open("r+b" if self.path.exists() else "wb") as out:
            out.seek(self._size)
            out.truncate()
            out.write(line)
            out.flush()
            os.fsync(out.fileno())
        self._size += len(line)
        self._entries.append(entry)


def done_runs(entries: Sequence[Entry]) -> list[Done]:
    """The runs as the plan sees them."""
    return [
        Done(
            key=entry["key"],
            cap_bytes=entry["cap_bytes"],
            outcome=entry["outcome"],
            throughput=entry["throughput"],
            peak_memory_bytes=entry["peak_memory_bytes"],
        )
        for entry in entries
    ]


def rows_of(entries: Sequence[Entry], predictions: Mapping[str, int | None]) -> dict[str, Row]:
    """A row a configuration by key, as ``tuner export --to table`` makes it of the same runs.

    Args:
        entries: Runs, all under one cap or all under none.
        predictions: Predicted peak in bytes by key.
    """
    by_key: dict[str, list[Entry]] = {}
    for entry in entries:
        by_key.setdefault(entry["key"], []).append(entry)
    return {key: _row(runs, predictions.get(key)) for key, runs in by_key.items()}


def _row(runs: Sequence[Entry], predicted: int | None) -> Row:
    first = runs[0]
    done = [run for run in runs if run["outcome"] == "completed"] if first["outcome"] == "completed" else []
    row = {
        "config": first["config"],
        "outcome": first["outcome"],
        "throughput": geometric_mean([run["throughput"] for run in done]) if done else None,
        "peak_memory_bytes": max((run["peak_memory_bytes"] for run in done), default=None),
        "seconds": first["seconds"],
        "predicted_peak_memory_bytes": predicted,
        **(_pieces(first) if done else {}),
        "runs": [{"throughput": run["throughput"], "seconds": run["seconds"]} for run in done] or None,
        "outcome_source": "measured",
    }
    return {
        name: value for name, value in row.items() if value is not None or name in ("throughput", "peak_memory_bytes")
    }


def _pieces(run: Entry) -> dict[str, Any]:
    """Where the seconds of a run went: everything before the window but compilation, compilation, the window."""
    said = run["measurement"]
    compiled = said.get("compile", {}).get("seconds") or 0.0
    before = run["seconds"] - said["window_seconds"] - (said.get("stall_seconds") or 0.0) - compiled
    return {
        "setup_seconds": max(before, 0.0),
        "compile_seconds": compiled or None,
        "window_seconds": said["window_seconds"],
        "step_seconds": as_run(said["step_seconds"], said["window_seconds"]),
        "data_stall_share": said.get("data_stall_share"),
    }


def as_run(step_seconds: Sequence[float], window_seconds: float) -> list[float]:
    """As :func:`tuner.export.table.as_run`, which this machine may not be able to import; a test compares them."""
    factor = min(1.0, window_seconds / sum(step_seconds))
    return [seconds * factor for seconds in step_seconds]
