"""The replay table: a whole study as JSON lines, one configuration a row, for benchmarks of search strategies. Pure.

The format is the design's: a head, then rows. Optional fields that were not measured are absent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from storage.records import RunRecord, TrialRecord
from tuner.answer.summary import StudyView
from tuner.export.handover import Export, ExportRefused
from tuner.search.noise import Interval

NAME = "table.jsonl"
TARGET = "`python -m benchmarks.search --table table.jsonl`"
MEASURED = ("completed", "pruned")
NOT_ITS_OWN = (None, "cancelled", "infra")
"""Ends that say nothing about the configuration: still running, stopped by a person, the machine's fault."""
_WINDOWS = ("search", "repeat")


def write(view: StudyView) -> Export:
    """All ended trials of a study.

    Raises:
        ExportRefused: None has ended yet.
    """
    lines = list(rows(view))
    if not lines:
        raise ExportRefused(f"study {view.study.name!r} has no ended trial yet: no table")
    text = "".join(json.dumps(line, allow_nan=False, ensure_ascii=False) + "\n" for line in (head(view), *lines))
    return Export(files={NAME: text}, values=head(view))


def head(view: StudyView) -> dict[str, Any]:
    """The first line: what the numbers belong to."""
    first = next((each for each in view.trials if each.number == 0), None)
    versions: dict[str, Any] = next((run.hardware["versions"] for run in view.runs if run.hardware.get("versions")), {})
    unit = next((each.throughput_unit for each in view.trials if each.throughput_unit), None)
    return {
        "table": view.study.name,
        "device": view.study.device,
        "throughput_unit": unit,
        "global_batch_size": view.spec.global_batch_size,
        **({"global_batch_tokens": view.spec.global_batch_tokens} if view.spec.global_batch_tokens else {}),
        "memory_limit_bytes": view.study.memory_limit_bytes,
        "baseline": None if first is None else dict(first.config),
        "versions": dict(versions),
    }


def rows(view: StudyView) -> Iterator[dict[str, Any]]:
    """A row a configuration, by trial number.

    Its throughput is what the search windows say together, as ``tuner show`` tells it; the error of that mean has the
    spread between runs in it, pooled over the study. ``runs`` holds the single windows, as a search saw them.
    """
    for trial in view.history.finished:
        if trial.outcome not in NOT_ITS_OWN:
            mine = [run for run in view.runs if run.trial_id == trial.id and run.purpose in _WINDOWS]
            yield _row(trial, mine, view.history.intervals.get(trial.id))


def _row(trial: TrialRecord, runs: Sequence[RunRecord], known: Interval | None) -> dict[str, Any]:
    measured = trial.outcome in MEASURED
    row = {
        "config": dict(trial.config),
        "outcome": trial.outcome,
        "throughput": trial.throughput if measured else None,
        "peak_memory_bytes": trial.peak_memory_bytes if measured else None,
        "seconds": _first_run_seconds(trial, runs),
        "throughput_standard_error": _error(trial, known) if measured else None,
        "predicted_peak_memory_bytes": trial.predicted_peak_memory_bytes,
        **_pieces(trial, runs),
        "outcome_source": "cut" if trial.outcome == "pruned" else "measured",
    }
    return {name: value for name, value in row.items() if value is not None or name in _NULLABLE}


_NULLABLE = ("throughput", "peak_memory_bytes")


def _error(trial: TrialRecord, known: Interval | None) -> float | None:
    return trial.throughput_standard_error if known is None else known.mean * known.standard_error


def _pieces(trial: TrialRecord, runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Where the seconds of the first run went, and what each run said; None where it is not known.

    ``setup_seconds`` is everything before the window but compilation: start, build, worst case, loader, warm-up.
    ``step_seconds`` never are more than the window together: see :func:`as_run`.
    """
    done = [run for run in runs if run.throughput is not None and run.outcome in MEASURED]
    first = done[0] if done else None
    said = {} if first is None else first.measurement
    compiled = said.get("compile", {}).get("seconds")
    window = said.get("window_seconds")
    after = said.get("stall_seconds") or 0.0
    before = None if first is None or window is None else first.seconds - window - after - (compiled or 0.0)
    return {
        "setup_seconds": None if before is None else max(before, 0.0),
        "compile_seconds": compiled or None,
        "window_seconds": window,
        "step_seconds": None if first is None else as_run(first.step_seconds, window) or None,
        "runs": [{"throughput": run.throughput, "seconds": run.seconds} for run in done] or None,
        "data_stall_share": said.get("data_stall_share"),
    }


def as_run(step_seconds: Sequence[float], window_seconds: float | None) -> list[float]:
    """Steps at the time they really took: a search that stops a run early is charged for these.

    A long optimizer step is measured by some of its micro-steps and its time composed from them: such steps together
    are longer than the window they were measured in, and are scaled down to it.
    """
    total = sum(step_seconds)
    factor = 1.0 if window_seconds is None or total <= window_seconds else window_seconds / total
    return [seconds * factor for seconds in step_seconds]


def _first_run_seconds(trial: TrialRecord, runs: Sequence[RunRecord]) -> float:
    """What one search run of this configuration costs: repeats and the confirmation are not a search's first ask."""
    searched = [run.seconds for run in runs if run.purpose == "search"]
    return searched[-1] if searched else trial.seconds
