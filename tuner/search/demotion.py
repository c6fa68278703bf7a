"""Runs after a trial's own end that show that its configuration does not hold after all. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from storage.records import RunRecord, TrialRecord

LATER_PURPOSES = ("repeat", "confirm", "soak")
"""Purposes of such runs."""

DEMOTING = frozenset({"device_oom", "numerical", "unsupported", "timeout"})
"""Outcomes of such a run that belong to the configuration (one crash of what has completed before says nothing)."""


def demoting_runs(
    trials: Iterable[TrialRecord], runs: Iterable[RunRecord], limit_bytes: int | None
) -> Mapping[int, RunRecord]:
    """By trial id, the first later run of a completed trial that failed, or needed more than the limit."""
    later = [run for run in runs if run.purpose in LATER_PURPOSES and demotes(run, limit_bytes)]
    if not later:
        return {}
    completed = {each.id for each in trials if each.outcome == "completed"}
    found: dict[int, RunRecord] = {}
    for run in sorted(later, key=lambda run: run.started_at):
        if run.trial_id is not None and run.trial_id in completed:
            found.setdefault(run.trial_id, run)
    return found


def demotes(run: RunRecord, limit_bytes: int | None) -> bool:
    """Whether this later run shows that the configuration does not hold."""
    peak = run.peak_memory_bytes
    over = run.outcome == "completed" and peak is not None and limit_bytes is not None and peak > limit_bytes
    return run.outcome in DEMOTING or over


def as_demoted(trials: Sequence[TrialRecord], failed: Mapping[int, RunRecord]) -> list[TrialRecord]:
    """The trials with those that failed later ending as they did then, for whoever looks for the best or learns."""
    if not failed:
        return list(trials)
    return [_demoted(each, failed[each.id]) if each.id in failed else each for each in trials]


def _demoted(trial: TrialRecord, run: RunRecord) -> TrialRecord:
    if run.outcome == "completed":
        return replace(trial, peak_memory_bytes=run.peak_memory_bytes)
    return replace(
        trial,
        outcome=run.outcome,
        cause=run.cause,
        confidence=run.confidence,
        throughput=None,
        peak_memory_bytes=None,
        evidence=run.evidence,
    )
