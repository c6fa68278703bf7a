"""Reads a replay table: every configuration of a grid with what it did. Pure but for reading the file.

The format is the design's ("Replay table"); ``tuner export STUDY --to table`` writes it. A head line, then a row a
configuration. Optional fields may be absent, knobs may be unknown, a row may be over the limit: then it is a misfit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.replay.grid import ACCUMULATION, Table
from benchmarks.replay.row import MEASURED, Knobs, Row, Run


class TableError(ValueError):
    """A file that is no replay table: the message names the file, the line, the reason and the way out."""


@dataclass(frozen=True, kw_only=True)
class _Line:
    """One line of the file, and how to complain about it."""

    file: str
    number: int
    values: Mapping[str, Any]

    def wrong(self, why: str) -> TableError:
        return TableError(f"{self.file}, line {self.number}: {why}")

    def number_of(self, name: str, *, least: float, needed: bool = False) -> float | None:
        """A finite number of at least ``least``; None where it is absent or null."""
        value = self.values.get(name)
        if value is None:
            if needed:
                raise self.wrong(f"{name!r} is missing: every row needs it")
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < least:
            raise self.wrong(f"{name!r} is {value!r}: a finite number of at least {least:g} is needed")
        return float(value)

    def knobs(self, name: str) -> Knobs:
        """A configuration; accumulation follows from the micro-batch and is left out."""
        value = self.values.get(name)
        if not isinstance(value, Mapping) or not value:
            raise self.wrong(f"{name!r} is {value!r}: an object of knob and value is needed")
        bad = [knob for knob, chosen in value.items() if not isinstance(chosen, (int, float, str, bool, type(None)))]
        if bad:
            raise self.wrong(f"knob {bad[0]!r} of {name!r} is no number, word, true, false or null")
        return {knob: chosen for knob, chosen in value.items() if knob != ACCUMULATION}


def read(path: Path | str) -> Table:
    """The table in a file.

    Raises:
        TableError: It cannot be read, or is no replay table; the message names file and line.
    """
    lines = list(_lines(Path(path)))
    if not lines:
        raise TableError(f"{path}: the file is empty: a head line and a row a configuration are needed")
    head, body = lines[0], lines[1:]
    rows = tuple(_row(line) for line in body)
    if not rows:
        raise head.wrong("there is no row after the head: a row a configuration is needed")
    _refuse_twins(rows, body)
    table = Table(
        name=_name(head),
        grid=_grid(head),
        limit_bytes=_limit(head),
        unit=str(head.values.get("throughput_unit") or "units_per_second"),
        device=str(head.values.get("device") or ""),
        global_batch_size=_batch(head, "global_batch_size"),
        global_batch_tokens=_batch(head, "global_batch_tokens"),
        baseline_knobs=None if head.values.get("baseline") is None else head.knobs("baseline"),
        rows=rows,
    )
    if not table.feasible:
        raise TableError(f"{path}: no row completed within the memory limit: there is nothing to find in this table")
    return table


def _lines(path: Path) -> Iterator[_Line]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield _parsed(str(path), number, line)


def _parsed(file: str, number: int, line: str) -> _Line:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise TableError(f"{file}, line {number}: not JSON ({error}): every line is one JSON object") from error
    if not isinstance(values, dict):
        raise TableError(f"{file}, line {number}: {type(values).__name__} instead of a JSON object")
    return _Line(file=file, number=number, values=values)


def _name(head: _Line) -> str:
    name = head.values.get("table")
    if not isinstance(name, str) or not name:
        raise head.wrong('the first line is the head and needs "table": its name')
    return name


def _grid(head: _Line) -> str:
    """Cuts of one grid share it: the head's ``grid``, else the name up to ``@`` (``gpt2@24GiB``: ``gpt2``)."""
    said = head.values.get("grid")
    return str(said) if said else _name(head).split("@")[0]


def _limit(head: _Line) -> int | None:
    limit = head.number_of("memory_limit_bytes", least=1)
    return None if limit is None else int(limit)


def _batch(head: _Line, name: str) -> int | None:
    size = head.number_of(name, least=1)
    return None if size is None else int(size)


def _row(line: _Line) -> Row:
    outcome = line.values.get("outcome")
    if not isinstance(outcome, str) or not outcome:
        raise line.wrong('"outcome" is missing: "completed", "device_oom" or another ending')
    peak, predicted = (
        line.number_of("peak_memory_bytes", least=0),
        line.number_of("predicted_peak_memory_bytes", least=0),
    )
    seconds = line.number_of("seconds", least=0, needed=True)
    runs = _runs(line)
    throughput = line.number_of("throughput", least=0)
    if throughput is None and runs:
        throughput = sum(run.throughput for run in runs) / len(runs)
    if outcome in MEASURED and not throughput:
        raise line.wrong(f'a {outcome} row needs a "throughput" above 0, or "runs" that have one')
    return Row(
        config=line.knobs("config"),
        outcome=outcome,
        throughput=throughput if outcome in MEASURED else None,
        standard_error=line.number_of("throughput_standard_error", least=0),
        peak_bytes=None if peak is None else int(peak),
        predicted_bytes=None if predicted is None else int(predicted),
        seconds=seconds or 0.0,
        setup_seconds=line.number_of("setup_seconds", least=0),
        compile_seconds=line.number_of("compile_seconds", least=0),
        step_seconds=_steps(line),
        runs=runs,
        data_stall_share=line.number_of("data_stall_share", least=0),
        cut=line.values.get("outcome_source") == "cut",
    )


def _steps(line: _Line) -> tuple[float, ...]:
    steps = line.values.get("step_seconds") or []
    if not isinstance(steps, list) or not all(isinstance(each, (int, float)) and each >= 0 for each in steps):
        raise line.wrong('"step_seconds" is a list of seconds')
    return tuple(float(each) for each in steps)


def _runs(line: _Line) -> tuple[Run, ...]:
    runs = line.values.get("runs") or []
    if not isinstance(runs, list) or not all(isinstance(each, dict) for each in runs):
        raise line.wrong('"runs" is a list of {"throughput", "seconds"}')
    parts = [_Line(file=line.file, number=line.number, values=each) for each in runs]
    found = [(part.number_of("throughput", least=0), part.number_of("seconds", least=0)) for part in parts]
    return tuple(Run(throughput=speed, seconds=seconds) for speed, seconds in found if speed)


def _refuse_twins(rows: tuple[Row, ...], lines: list[_Line]) -> None:
    seen: dict[str, int] = {}
    for row, line in zip(rows, lines, strict=True):
        if row.key in seen:
            raise line.wrong(
                f"the configuration of line {seen[row.key]} again: one row a configuration, its runs inside"
            )
        seen[row.key] = line.number
