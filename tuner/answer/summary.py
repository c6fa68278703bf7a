"""The JSON of ``run``, ``show``, ``front`` and ``list``. Pure: rows in, one document out; missing figures are null."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp, log
from statistics import fmean
from typing import Any

from objectives.knobs import facts_from_mapping
from objectives.knobs.knob import Facts
from storage.records import RunRecord, StudyRecord, TrialRecord
from tuner.answer.explain import Step, explanation
from tuner.answer.notices import notices
from tuner.answer.verdict import Confirmation, confirmation
from tuner.search.front import is_feasible, knee, pareto_front
from tuner.search.noise import Interval, study_spread
from tuner.search.prepared import Prepared
from tuner.search.renewal import current_runs, since_of
from tuner.search.schedule import History
from tuner.spec.model import StudySpec

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class StudyView:
    """A study's rows with what follows from them."""

    study: StudyRecord
    trials: Sequence[TrialRecord]
    runs: Sequence[RunRecord]
    spec: StudySpec

    @cached_property
    def facts(self) -> Facts | None:
        """What the machine can do; None before the study was prepared."""
        stored = self.study.facts.get("facts")
        return facts_from_mapping(stored) if stored else None

    @cached_property
    def history(self) -> History:
        """The study as the schedule sees it."""
        return History(
            trials=self.trials,
            runs=current_runs(self.runs, since_of(self.study.facts)),
            elapsed_seconds=self.study.seconds,
            limit_bytes=self.study.memory_limit_bytes,
            device_kind=self.facts.device_kind if self.facts is not None else "cpu",
        )

    @cached_property
    def answer(self) -> Confirmation:
        """The confirmation's verdict so far."""
        return confirmation(self.history)

    @cached_property
    def ended(self) -> list[TrialRecord]:
        """Finished trials by number, with the numbers that are reported: the confirmation's where there is one."""
        return [self._reported(each) for each in self.history.finished]

    @cached_property
    def standing(self) -> list[TrialRecord]:
        """Those that no later run has thrown out."""
        return [each for each in self.ended if each.id not in self.answer.demoted]

    @cached_property
    def front(self) -> list[TrialRecord]:
        """The Pareto front, fastest first; the confirmed best is always on it.

        An unconfirmed trial may read a little faster than the best: then it is one of the ties.
        """
        found = pareto_front(self.standing, self.study.memory_limit_bytes)
        best = [each for each in self.standing if each.id == self.answer.best and each not in found]
        return sorted([*found, *best], key=lambda each: -(each.throughput or 0.0))

    @cached_property
    def level(self) -> float:
        """Factor that brings search numbers to the confirmation's level; 1 before there is one.

        The machine may have become slower or faster between the two, and search numbers flatter whoever won by them.
        The trials measured in both say by how much (geometric mean), so that one front does not mix two levels.
        """
        both = [each for each in self.answer.intervals if each in self.history.intervals]
        if not both:
            return 1.0
        moved = (log(self.answer.intervals[each].mean / self.history.intervals[each].mean) for each in both)
        return exp(fmean(moved))

    @cached_property
    def total_memory_bytes(self) -> int | None:
        """The device's memory: as a run's hardware says it, else the limit over its share; None when unknown."""
        said = (run.hardware.get("total_memory_bytes") for run in self.runs)
        total = next((each for each in said if isinstance(each, int)), None)
        share, limit = self.spec.limits.memory.share, self.study.memory_limit_bytes
        return int(limit / share) if total is None and share and limit is not None else total

    @cached_property
    def steps(self) -> list[Step] | None:
        """Why the winner won (:func:`tuner.answer.explain.explanation`): it may have to learn a cost model."""
        return explanation(self)

    def interval(self, trial: TrialRecord) -> Interval | None:
        """The trial's interval: the confirmation's, else the search's; None without a measurement."""
        if (confirmed := self.answer.intervals.get(trial.id)) is not None:
            return confirmed
        known = self.history.intervals.get(trial.id)
        return None if known is None else known.scaled(self.level)

    def _reported(self, trial: TrialRecord) -> TrialRecord:
        known = self.answer.intervals.get(trial.id)
        if known is not None:
            return replace(trial, throughput=known.mean, confirmed=True)
        return trial if trial.throughput is None else replace(trial, throughput=trial.throughput * self.level)


def summarise(
    study: StudyRecord,
    trials: Sequence[TrialRecord],
    runs: Sequence[RunRecord],
    spec: StudySpec,
    *,
    explained: bool = True,
) -> Json:
    """The document of ``run --json`` and ``show --json``.

    Beside the fields of the design: ``global_batch_tokens``, ``speedup_reason`` (why there is no speed-up), ``ties``
    (numbers of trials that may be as fast as the best), ``demoted``, ``knee`` (a trial number), ``headroom_bytes``
    (what the best leaves of the limit), ``fits_without_margin`` (trials between the limit and the device's memory),
    ``refused`` choices, ``between_run_spread`` (relative, one standard deviation), ``search_level`` (the factor that
    brought numbers of unconfirmed trials to the confirmation's level), ``explanation`` and ``notices``.

    Args:
        study: The study's row.
        trials: Its trials.
        runs: Its runs.
        spec: Its spec.
        explained: Whether ``explanation`` is made (a list of studies does without: it may have to learn a cost model).
    """
    view = StudyView(study=study, trials=trials, runs=runs, spec=spec)
    steps = view.steps if explained else None
    told = None if steps is None else [each.to_json() for each in steps]
    return _head(view) | _winner(view) | _around(view) | {"explanation": told}


def front_json(study: StudyRecord, trials: Sequence[TrialRecord], runs: Sequence[RunRecord], spec: StudySpec) -> Json:
    """The document of ``front --json``: the front's trials, fastest first."""
    view = StudyView(study=study, trials=trials, runs=runs, spec=spec)
    return {"study": study.name, "trials": [trial_json(each, view) for each in view.front]}


LIST_KEYS = (
    "study", "status", "stop_reason", "objective", "device", "counts", "seconds", "best", "speedup_over_baseline",
    "priority", "workers",
)  # fmt: skip


def list_json(summaries: Iterable[Mapping[str, Any]]) -> Json:
    """The document of ``list --json``, from the studies' summaries."""
    return {"studies": [{key: summary.get(key) for key in LIST_KEYS} for summary in summaries]}


def trial_json(trial: TrialRecord, view: StudyView) -> Json:
    """One trial as the design's JSON says; ``throughput`` is the middle of its interval."""
    interval = view.interval(trial)
    measured = trial.outcome in ("completed", "pruned")
    return {
        "number": trial.number,
        "outcome": trial.outcome,
        "cause": trial.cause,
        "config": dict(trial.config),
        "throughput": trial.throughput if measured else None,
        "throughput_unit": trial.throughput_unit,
        "throughput_interval": None if interval is None or not measured else [interval.low, interval.high],
        "peak_memory_bytes": trial.peak_memory_bytes,
        "predicted_peak_memory_bytes": trial.predicted_peak_memory_bytes,
        "seconds": trial.seconds,
        "confirmed": trial.id in view.answer.intervals,
    }


def _head(view: StudyView) -> Json:
    study, spec = view.study, view.spec
    return {
        "study": study.name,
        "status": study.status,
        "stop_reason": study.stop_reason,
        "objective": spec.objective.kind,
        "device": study.device,
        "global_batch_size": spec.global_batch_size,
        "global_batch_tokens": spec.global_batch_tokens,
        "memory_limit_bytes": study.memory_limit_bytes,
        "counts": dict(Counter(each.outcome for each in view.trials if each.outcome is not None)),
        "seconds": study.seconds,
    }


def _winner(view: StudyView) -> Json:
    answer, by_id = view.answer, {each.id: each for each in view.ended}
    best = None if answer.best is None else by_id[answer.best]
    baseline = next((each for each in view.ended if each.number == 0), None)
    speedup = answer.speedup
    return {
        "baseline": None if baseline is None else trial_json(baseline, view),
        "best": None if best is None else trial_json(best, view),
        "front": [trial_json(each, view) for each in view.front],
        "speedup_over_baseline": None if speedup is None else speedup.ratio,
        "speedup_over_baseline_interval": None if speedup is None else [speedup.low, speedup.high],
        "speedup_reason": answer.no_speedup,
        "headroom_bytes": _headroom(best, view.study.memory_limit_bytes),
    }


def _around(view: StudyView) -> Json:
    answer, numbers = view.answer, {each.id: each.number for each in view.ended}
    middle = knee(view.front)
    spread = study_spread(view.runs, view.trials, view.history.device_kind)
    return {
        "knee": None if middle is None else middle.number,
        "ties": sorted(numbers[each] for each in answer.ties),
        "demoted": [{"number": numbers[each], "reason": reason} for each, reason in answer.demoted.items()],
        "fits_without_margin": [trial_json(each, view) for each in _without_margin(view)],
        "refused": _refused(view),
        "between_run_spread": spread.relative if spread.windows else None,
        "search_level": view.level,
        "notices": notices(view),
    }


def _headroom(best: TrialRecord | None, limit_bytes: int | None) -> int | None:
    if best is None or best.peak_memory_bytes is None or limit_bytes is None:
        return None
    return limit_bytes - best.peak_memory_bytes


def _without_margin(view: StudyView) -> list[TrialRecord]:
    """Completed trials over the limit that the device would still hold: they fit, without the stated headroom."""
    limit, total = view.study.memory_limit_bytes, view.total_memory_bytes
    if limit is None:
        return []
    over = (each for each in view.standing if each.outcome == "completed" and not is_feasible(each, limit))
    return [each for each in over if limit < (each.peak_memory_bytes or 0) <= (total or float("inf"))]


def _refused(view: StudyView) -> list[Json]:
    """What the machine (or the batch) refused before a trial."""
    if view.facts is None:
        return []
    _, space = Prepared.from_mapping(view.study.facts).baseline_and_space(view.spec)
    split = ((*choice.partition("="), reason) for choice, reason in space.refused.items())
    return [{"knob": name, "value": value or None, "reason": reason} for name, _, value, reason in split]
