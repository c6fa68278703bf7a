"""Who may win: the trials that could be the fastest, and those a longer run has thrown out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from objectives.trial.outcome import same_failure
from storage.records import RunRecord, TrialRecord
from tuner.search.demotion import DEMOTING, LATER_PURPOSES
from tuner.search.front import best_trial, is_feasible
from tuner.search.noise import Interval, overlaps
from tuner.search.reasons import reason_of, verdict_of
from tuner.search.schedule import History

NO_FAULT = frozenset({"infra", "host_oom", "shm", "crashed"})
"""A lost machine, a run that the system killed for whatever else ran there, a crash: one of them says nothing about a
configuration that has completed before. It is run again, at most :data:`ATTEMPTS` times in all."""

ATTEMPTS = 3
"""Runs of one trial that may end so before the confirmation goes on without it. So many *crashes* alike, and no
completed run among them, are the configuration's own: as in the search, several alike in a row mean something."""


FEWEST_ROUNDS = 2
"""Completed confirmation runs without which nothing counts as confirmed."""


def contenders(history: History) -> list[TrialRecord]:
    """The feasible trials whose interval overlaps the fastest's, fastest first, and the baseline wherever it stands.

    Trials that failed in a later run, or could not be confirmed in :data:`ATTEMPTS` runs, are left out: the next ones
    move up.
    """
    out = demoted(history).keys() | given_up(history).keys()
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
    return reasons | {each: why for each in completed if (why := _crashes(history.runs, each)) and each not in reasons}


def given_up(history: History) -> Mapping[int, str]:
    """Reason by trial id for trials whose confirmation ended too often without saying anything about them."""
    mine: dict[int, list[RunRecord]] = {}
    for run in sorted(history.runs, key=lambda run: run.started_at):
        if run.purpose == "confirm" and run.trial_id is not None:
            mine.setdefault(run.trial_id, []).append(run)
    unconfirmed = {
        key: [run for run in runs if run.outcome in NO_FAULT]
        for key, runs in mine.items()
        if sum(run.outcome == "completed" for run in runs) < FEWEST_ROUNDS
    }
    return {key: reason_of(failed[-1]) for key, failed in unconfirmed.items() if len(failed) >= ATTEMPTS}


def _crashes(runs: Sequence[RunRecord], trial_id: int) -> str | None:
    """What the trial's later runs crashed of, when the last of them all did, and alike."""
    later = [run for run in runs if run.trial_id == trial_id and run.purpose in LATER_PURPOSES]
    later = sorted((run for run in later if run.outcome not in (None, "cancelled")), key=lambda run: run.started_at)
    last = later[-ATTEMPTS:]
    alike = len(last) == ATTEMPTS and all(
        run.outcome == "crashed" and same_failure(verdict_of(run), verdict_of(last[0])) for run in last
    )
    return f"crashed {ATTEMPTS} times in a row in longer runs: {reason_of(last[-1])}" if alike else None


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
