"""What a chaos run shows, from plain rows: lost, doubled, late, how soon each lease was recovered. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.records import RunRecord, TrialRecord, WorkerRecord

MEASURING = frozenset({"search", "repeat", "confirm"})
TAUGHT = frozenset({"device_oom", "timeout", "numerical", "unsupported"})
"""Outcomes that would teach the search something that nothing here deserves."""
UNHEARD_SECONDS = 2.0
"""A child that said its result so shortly before its worker was killed was perhaps never heard by it ..."""
DYING_SECONDS = 1.0
"""... and so long a killed process may take to close its end of the line, on a busy machine."""


@dataclass(frozen=True, kw_only=True)
class Transition:
    """An outcome that was given (``before`` None), changed, or taken back (``after`` None)."""

    kind: str
    id: str
    before: str | None
    after: str | None


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Everything there is to judge by.

    Attributes:
        journal: What the children wrote themselves.
        transitions: What the server wrote.
        hits: When which process was hit with what.
        outages: Begin and end of each, ``time.time()``.
    """

    trials: Sequence[TrialRecord]
    runs: Sequence[RunRecord]
    workers: Sequence[WorkerRecord]
    journal: Sequence[Mapping[str, Any]]
    transitions: Sequence[Transition]
    hits: Sequence[tuple[float, str, int]]
    outages: Sequence[tuple[float, float]]
    lease_seconds: float


def judge(seen: Seen) -> dict[str, Any]:
    """The figures of a run."""
    fates = Counter(fate(line, seen) for line in seen.journal if line["what"] == "finished" and _measures(line, seen))
    recovered = recoveries(seen)
    return {
        "trials": len(seen.trials),
        "runs": len(seen.runs),
        "outcomes": dict(Counter(str(trial.outcome) for trial in seen.trials)),
        "run_outcomes": dict(Counter(_ending(run) for run in seen.runs)),
        "lost": fates["lost"] + len(unended(seen)),
        "doubled": len(doubled(seen)),
        "results": dict(fates),
        "taught": sum(each.outcome in TAUGHT for each in (*seen.trials, *seen.runs)),
        "numbers_contiguous": [trial.number for trial in seen.trials] == list(range(len(seen.trials))),
        "leases_expired": len(recovered),
        "recovery_seconds_max": round(max(recovered, default=0.0), 2),
        "recovery_seconds": [round(each, 2) for each in sorted(recovered)],
    }


def fate(line: Mapping[str, Any], seen: Seen) -> str:
    """What became of a result that a child has told: ``stored``, ``late``, ``unheard`` or ``lost``.

    Unheard is a result whose worker was killed within :data:`UNHEARD_SECONDS`: it died with the socket between the two,
    and its trial is measured again.
    """
    run = next(run for run in seen.runs if run.id == line["run"])
    said = line.get("throughput")
    if run.outcome in ("completed", "pruned"):
        return "stored" if run.throughput == said else "lost"
    late = run.evidence.get("late")
    if run.cause == "worker_lost" and late is not None:
        return "late" if late.get("throughput") == said else "lost"
    if run.cause == "worker_lost" and _worker_was_killed(run, float(line["at"]), seen):
        return "unheard"
    return "lost"


def _worker_was_killed(run: RunRecord, at: float, seen: Seen) -> bool:
    pids = {worker.pid for worker in seen.workers if worker.id == run.worker_id}
    killed = (moment for moment, what, pid in seen.hits if what in ("worker", "stop") and pid in pids)
    return any(-DYING_SECONDS <= moment - at <= UNHEARD_SECONDS for moment in killed)


def _measures(line: Mapping[str, Any], seen: Seen) -> bool:
    return any(run.id == line["run"] and run.purpose in MEASURING for run in seen.runs)


def unended(seen: Seen) -> list[str]:
    """Runs and trials without an outcome."""
    runs = [f"run {run.id}" for run in seen.runs if run.outcome is None]
    return runs + [f"trial {trial.number}" for trial in seen.trials if trial.outcome is None]


def doubled(seen: Seen) -> list[str]:
    """What ended twice, was counted twice, or was made twice."""
    counted = Counter(run.trial_id for run in seen.runs if run.purpose == "search" and run.outcome == "completed")
    twice = [f"trial {trial_id} has {count} results" for trial_id, count in counted.items() if count > 1]
    keys = Counter(trial.config_key for trial in seen.trials)
    twice += [f"configuration {key} has {count} trials" for key, count in keys.items() if count > 1]
    lines = Counter(line["run"] for line in seen.journal if line["what"] == "finished")
    twice += [f"run {run} has {count} children" for run, count in lines.items() if count > 1]
    return twice + [
        f"{each.kind} {each.id}: {each.before} became {each.after}"
        for each in seen.transitions
        if each.before is not None and not _taken_up_again(each)
    ]


def _taken_up_again(change: Transition) -> bool:
    """A trial that was cancelled with its study goes on with it."""
    return change.kind == "trial" and change.before == "cancelled" and change.after is None


def recoveries(seen: Seen) -> list[float]:
    """Seconds from each lease's end until it was taken away, outages and the lease behind each left out."""
    quiet = [(begin, end + seen.lease_seconds) for begin, end in seen.outages]
    found = []
    for worker in seen.workers:
        expired = worker.ended_at is not None and (worker.reason or "").startswith("nothing was heard")
        if expired and worker.ended_at is not None:
            over = worker.heartbeat_at.timestamp() + worker.lease_seconds
            found.append(_outside(over, worker.ended_at.timestamp(), quiet))
    return found


def _outside(begin: float, end: float, without: Iterable[tuple[float, float]]) -> float:
    """Length of an interval without what lies in others, which do not overlap each other."""
    inside = sum(max(0.0, min(end, high) - max(begin, low)) for low, high in without)
    return max(0.0, end - begin - inside)


def _ending(run: RunRecord) -> str:
    return f"{run.purpose}/{run.outcome}" + (f"/{run.cause}" if run.cause else "")
