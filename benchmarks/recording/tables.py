"""Tables as files: a head, then a row a configuration, as JSON lines. Written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.recording.cuts import Row, cut_rows
from benchmarks.recording.plan import Noise, noise
from objectives.config import TrainingConfig
from objectives.knobs import config_key


def row_key(row: Mapping[str, Any]) -> str:
    """The key of a row's configuration."""
    return config_key(TrainingConfig.from_mapping(row["config"]))


def noise_of(rows: Iterable[Row]) -> Noise:
    """How far the runs of these rows differ."""
    return noise([run["throughput"] for run in row.get("runs", ())] for row in rows)


def with_error(row: Row, found: Noise) -> Row:
    """The row with the standard error that the pooled noise gives its mean; as it is without noise or runs."""
    runs = len(row.get("runs", ()))
    if found.relative is None or not runs or row["throughput"] is None:
        return row
    error: float = row["throughput"] * found.relative / runs**0.5
    return {**row, "throughput_standard_error": error}


def write_tables(
    folder: Path,
    head: Mapping[str, Any],
    rows: Iterable[Row],
    real: Mapping[int, Mapping[str, Row]],
) -> list[Path]:
    """Writes the uncut table and one for each cap.

    Args:
        folder: Where; made if need be.
        head: The uncut table's; its ``table`` is the grid's name.
        rows: The uncut grid's, without pooled errors.
        real: Rows of the real runs by configuration, by cap in bytes.
    """
    grid, listed = str(head["table"]), list(rows)
    found = noise_of(listed)
    listed = [with_error(row, found) for row in listed]
    by_key = {row_key(row): row for row in listed}
    told = {**head, "grid": grid, "noise": _noise_json(found)}
    paths = [write_table(folder / f"{grid}.jsonl", told, listed)]
    for cap, measured in real.items():
        name = f"{grid}@{cap_name(cap)}"
        cut = {**told, "table": name, "memory_limit_bytes": cap}
        paths.append(write_table(folder / f"{name}.jsonl", cut, cut_rows(by_key, cap, measured)))
    return paths


def cap_name(cap: int) -> str:
    """A cap as it stands in a table's name: ``40GiB``, ``160MiB``."""
    return f"{cap // 2**30}GiB" if cap % 2**30 == 0 else f"{cap // 2**20}MiB"


def write_table(path: Path, head: Mapping[str, Any], rows: Iterable[Row]) -> Path:
    """Writes one table; a reader sees the old one or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line, allow_nan=False, ensure_ascii=False) + "\n" for line in (head, *rows))
    aside = path.with_suffix(".new")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)
    return path


def _noise_json(found: Noise) -> dict[str, Any]:
    return {
        "relative_standard_deviation": found.relative,
        "degrees_of_freedom": found.freedom,
        "median_runs": found.median_runs,
        "relative_standard_error": found.standard_error,
    }
