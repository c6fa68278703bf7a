"""Who may win: the trials that could be the fastest, and those a longer run has thrown out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage.records import RunRecord, TrialRecord
from tuner.search.front import best_trial, is_feasible
from tuner.search.noise import Interval, overlaps
from tuner.search.reasons import reason_of
from tuner.search.schedule import History

LATER_PURPOSES = ("repeat", "confirm", "soak")
"""Runs after a trial's own end that can still show that its configuration does not hold."""

DEMOTING = frozenset({"device_oom", "numerical", "unsupported", "timeout", "crashed"})
"""Outcomes of such a run that belong to the configuration."""

NO_FAULT = frozenset({"infra", "host_oom", "shm"})
"""A lost machine, or a run that the system killed for whatever else ran there: says nothing about a configuration
that has completed before. It is run again, a bounded number of times."""


def contenders(history: History) -> list[TrialRecord]:
    """The feasible trials whose interval overlaps the fastest's, fastest first, and the baseline wherever it stands.

    Trials that failed in a later run are left out: the next ones move up.
    """
    out = demoted(history)
    standing = [each for each in history.finished if each.id not in out and each.id in history.intervals]
    best = best_trial(standing, history.limit_bytes)
    if best is None:
        return []
    top = history.intervals[best.id]
    chosen = [
        each
        for each in standing
        if is_feasible(each, history.limit_bytes) and (each.number == 0 or overlaps(history.intervals[each.id], top))
    ]
    return sorted(chosen, key=lambda each: _order(each, history.intervals))


def demoted(history: History) -> Mapping[int, str]:
    """Reason by trial id for trials that completed and failed in a later run, or needed more than the limit there."""
    completed = {each.id: each for each in history.trials if each.outcome == "completed"}
    reasons: dict[int, str] = {}
    for run in sorted(history.runs, key=lambda run: run.started_at):
        trial = completed.get(run.trial_id or -1)
        if trial is not None and run.purpose in LATER_PURPOSES and trial.id not in reasons:
            reason = _reason(run, history.limit_bytes)
            reasons |= {} if reason is None else {trial.id: reason}
    return reasons


def runs_that_count(runs: Sequence[RunRecord], trial_id: int, purpose: str) -> list[RunRecord]:
    """The trial's completed runs of one purpose, earliest first."""
    mine = [run for run in runs if run.trial_id == trial_id and run.purpose == purpose and run.outcome == "completed"]
    return sorted(mine, key=lambda run: run.started_at)


def _order(trial: TrialRecord, known: Mapping[int, Interval]) -> tuple[bool, float, int]:
    return (known[trial.id].disturbed, -known[trial.id].mean, trial.number)


def _reason(run: RunRecord, limit_bytes: int | None) -> str | None:
    where = {"confirm": "in the confirmation", "soak": "in the soak run"}.get(run.purpose, "in a further window")
    if run.outcome in DEMOTING:
        return f"failed {where}: {reason_of(run)}"
    peak = run.peak_memory_bytes
    if run.outcome == "completed" and peak is not None and limit_bytes is not None and peak > limit_bytes:
        return f"needed {peak / 2**30:.2f} GiB {where}, the limit is {limit_bytes / 2**30:.2f} GiB"
    return None
