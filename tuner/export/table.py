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

NAME = "table.jsonl"
TARGET = "`python -m benchmarks.search --table table.jsonl`"
MEASURED = ("completed", "pruned")
NOT_ITS_OWN = (None, "cancelled", "infra")
"""Ends that say nothing about the configuration: still running, stopped by a person, the machine's fault."""
_FROM_METRICS = ("setup_seconds", "compile_seconds", "data_stall_share")
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
    """A row a configuration, by trial number. Its throughput is the search windows', which is what a search saw."""
    for trial in view.trials:
        if trial.outcome not in NOT_ITS_OWN:
            yield _row(trial, [run for run in view.runs if run.trial_id == trial.id and run.purpose in _WINDOWS])


def _row(trial: TrialRecord, runs: Sequence[RunRecord]) -> dict[str, Any]:
    measured = trial.outcome in MEASURED
    row = {
        "config": dict(trial.config),
        "outcome": trial.outcome,
        "throughput": trial.throughput if measured else None,
        "peak_memory_bytes": trial.peak_memory_bytes if measured else None,
        "seconds": _first_run_seconds(trial, runs),
        **_optional(trial, runs),
        "outcome_source": "cut" if trial.outcome == "pruned" else "measured",
    }
    return {name: value for name, value in row.items() if value is not None or name in _NULLABLE}


_NULLABLE = ("throughput", "peak_memory_bytes")


def _optional(trial: TrialRecord, runs: Sequence[RunRecord]) -> dict[str, Any]:
    done = [run for run in runs if run.throughput is not None and run.outcome in MEASURED]
    steps = next((list(run.step_seconds) for run in runs if run.step_seconds), None)
    found = {name: trial.metrics.get(name) for name in _FROM_METRICS}
    return {
        "throughput_standard_error": trial.throughput_standard_error,
        "predicted_peak_memory_bytes": trial.predicted_peak_memory_bytes,
        **found,
        "step_seconds": steps,
        "runs": [{"throughput": run.throughput, "seconds": run.seconds} for run in done] or None,
    }


def _first_run_seconds(trial: TrialRecord, runs: Sequence[RunRecord]) -> float:
    """What one search run of this configuration costs: repeats and the confirmation are not a search's first ask."""
    searched = [run.seconds for run in runs if run.purpose == "search"]
    return searched[-1] if searched else trial.seconds
