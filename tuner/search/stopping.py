"""When a search ends, and why, in words for people. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from objectives.config import TrainingConfig
from objectives.trial.outcome import same_failure
from storage.records import TrialRecord
from tuner.search.front import feasible, hypervolume, pareto_front
from tuner.search.memory_order import frugality
from tuner.search.reasons import reason_of, verdict_of
from tuner.search.samplers.proposer import Exhausted
from tuner.spec.model import StudySpec

SEARCH_SHARE = 2 / 3
"""Of the time limit; the rest is kept for the confirmation."""

PATIENCE = 12
"""Finished trials without gain after which the search ends (never for ``grid``, and not for ``auto``)."""

KNOWS_ITS_END = ("auto", "grid")
"""Samplers that say themselves when nothing is left: one by what it expects, the other when all has run."""

WORTHWHILE = 0.01
"""A gain is at least this share more throughput of the best, or more area under the front."""

ALIKE_AT_FIRST = 3
"""So many failures alike in a row end a study in which nothing has completed."""

ALIKE_LATER = 5
"""So many crashes or machine failures alike in a row end any study."""

MISFITS_AT_FIRST = 5
"""So many trials out of memory, the smallest configuration among them, end a study in which nothing fitted."""

Kind = Literal["trials", "time", "exhausted", "nothing_to_gain", "no_gain", "alike_failures", "nothing_feasible"]


@dataclass(frozen=True, kw_only=True)
class Stop:
    """The end of a search.

    Attributes:
        reason: For people; stored as the study's ``stop_reason``.
        kind: For code. ``alike_failures`` and ``nothing_feasible`` are failed studies.
    """

    reason: str
    kind: Kind

    @property
    def failed(self) -> bool:
        """Whether the study brought nothing that could be confirmed, or cannot go on."""
        return self.kind in ("alike_failures", "nothing_feasible")


def decide(
    trials: Sequence[TrialRecord],
    spec: StudySpec,
    *,
    elapsed_seconds: float,
    limit_bytes: int | None,
    exhausted: Exhausted | None = None,
    smallest: TrainingConfig | None = None,
) -> Stop | None:
    """Whether the search ends now; None to go on.

    Args:
        trials: All trials of the study, by number; those still running have no outcome.
        spec: The spec; limits and sampler may have changed since the study began.
        elapsed_seconds: Wall time spent on the study, over all sessions.
        limit_bytes: What the peak may be at most; None for no limit.
        exhausted: The proposer's word that nothing is left; None while there is.
        smallest: The configuration of the space that usually needs least memory; None when it is not known.
    """
    ended = sorted((each for each in trials if each.outcome not in (None, "cancelled")), key=lambda each: each.number)
    found = (
        _alike_failures(ended)
        or _nothing_fits(ended, limit_bytes, smallest)
        or _out_of_time(spec, elapsed_seconds)  # before the trials: the last of them may have been cut short by it
        or _out_of_trials(trials, spec)
        or (Stop(reason=exhausted.reason, kind=exhausted.kind) if exhausted else None)
        or _no_gain(ended, spec, limit_bytes)
    )
    return _with_feasibility(found, ended, trials, limit_bytes)


def nothing_feasible(ended: Sequence[TrialRecord], limit_bytes: int | None) -> str:
    """The sentence for a study in which nothing fits: the smallest configuration tried and the first reason."""
    if not ended:
        return "nothing feasible: no trial was run"
    smallest = min(ended, key=lambda each: frugality(TrainingConfig.from_mapping(each.config)))
    first = next((each for each in ended if each.outcome != "completed"), ended[0])
    why = reason_of(first) if first.outcome != "completed" else _over_limit(first, limit_bytes)
    return f"nothing feasible; smallest tried was {describe(smallest)}; first reason: {why}"


def describe(trial: TrialRecord) -> str:
    """The trial's number with the knobs that are not at the trainer's defaults."""
    defaults = TrainingConfig().knobs()
    told = {name: value for name, value in trial.config.items() if name in defaults and value != defaults[name]}
    told = {"micro_batch_size": trial.config.get("micro_batch_size", 1)} | told
    return f"trial {trial.number} ({', '.join(f'{name}={value}' for name, value in told.items())})"


def _over_limit(trial: TrialRecord, limit_bytes: int | None) -> str:
    if trial.peak_memory_bytes is None or limit_bytes is None:
        return "it completed without a measurement"
    return f"it needs {trial.peak_memory_bytes / 2**30:.2f} GiB, the limit is {limit_bytes / 2**30:.2f} GiB"


def _out_of_trials(trials: Sequence[TrialRecord], spec: StudySpec) -> Stop | None:
    if len(trials) < spec.limits.trials:
        return None
    return Stop(reason=f"the limit of {spec.limits.trials} trials is reached", kind="trials")


def _out_of_time(spec: StudySpec, elapsed_seconds: float) -> Stop | None:
    limit = spec.limits.time_seconds
    if limit is None or elapsed_seconds < limit * SEARCH_SHARE:
        return None
    return Stop(reason=f"the search's two thirds of the {limit:.0f} s limit are used", kind="time")


def _alike_failures(ended: Sequence[TrialRecord]) -> Stop | None:
    streak = _streak(ended)
    if not streak:
        return None
    nothing_yet = not any(each.outcome in ("completed", "pruned") for each in ended)
    enough = ALIKE_AT_FIRST if nothing_yet else ALIKE_LATER
    if len(streak) < enough or not (nothing_yet or streak[0].outcome in ("crashed", "infra")):
        return None
    reason = f"{len(streak)} trials in a row failed for the same reason: {reason_of(streak[-1])}"
    return Stop(reason=reason, kind="alike_failures")


def _streak(ended: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The last trials that failed alike, latest first; an out-of-memory is no such failure: smaller ones may fit."""
    streak: list[TrialRecord] = []
    for trial in reversed(ended):
        if trial.outcome in ("completed", "pruned", "device_oom"):
            break
        if streak and not same_failure(verdict_of(streak[0]), verdict_of(trial)):
            break
        streak.append(trial)
    return streak


def _nothing_fits(
    ended: Sequence[TrialRecord], limit_bytes: int | None, smallest: TrainingConfig | None
) -> Stop | None:
    if smallest is None:
        return None
    misfits = [each for each in ended if each.outcome == "device_oom" or _too_big(each, limit_bytes)]
    if len(misfits) < MISFITS_AT_FIRST or len(misfits) < len(ended):
        return None
    if not any(TrainingConfig.from_mapping(each.config) == smallest for each in misfits):
        return None
    return Stop(reason=nothing_feasible(ended, limit_bytes), kind="nothing_feasible")


def _too_big(trial: TrialRecord, limit_bytes: int | None) -> bool:
    known = trial.peak_memory_bytes is not None and limit_bytes is not None
    return trial.outcome == "completed" and known and (trial.peak_memory_bytes or 0) > (limit_bytes or 0)


def _no_gain(ended: Sequence[TrialRecord], spec: StudySpec, limit_bytes: int | None) -> Stop | None:
    if spec.sampler in KNOWS_ITS_END or len(ended) <= PATIENCE:
        return None
    before, now = (_worth(part, limit_bytes) for part in (ended[:-PATIENCE], ended))
    if before is None or now is None or any(b > a * (1 + WORTHWHILE) for a, b in zip(before, now, strict=True)):
        return None
    reason = f"no gain over the last {PATIENCE} trials (less than {WORTHWHILE:.0%} in throughput and on the front)"
    return Stop(reason=reason, kind="no_gain")


def _worth(trials: Sequence[TrialRecord], limit_bytes: int | None) -> tuple[float, float] | None:
    front = pareto_front(trials, limit_bytes)
    if not front:
        return None
    most = limit_bytes if limit_bytes is not None else max(each.peak_memory_bytes or 0 for each in trials) * 2
    return front[0].throughput or 0.0, hypervolume(front, most)


def _with_feasibility(
    stop: Stop | None, ended: Sequence[TrialRecord], trials: Sequence[TrialRecord], limit_bytes: int | None
) -> Stop | None:
    """A search that ends by itself without a feasible trial says so first."""
    running = any(each.outcome is None for each in trials)
    if stop is None or stop.failed or running or feasible(ended, limit_bytes):
        return stop
    return Stop(reason=f"{nothing_feasible(ended, limit_bytes)} ({stop.reason})", kind="nothing_feasible")
