"""Who is examined: the baseline (what the user would have used) and the winner, with their runs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from objectives.config import TrainingConfig
from objectives.knobs import canonical

if TYPE_CHECKING:
    from storage.records import RunRecord, TrialRecord
    from tuner.answer.summary import StudyView

MEASURING = ("search", "repeat", "confirm")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A trial under examination.

    Attributes:
        word: ``baseline`` or ``winner``; the fastest so far is the winner's stand-in while nothing is confirmed.
        runs: Its completed measuring runs, earliest first.
    """

    word: str
    trial: TrialRecord
    runs: tuple[RunRecord, ...]

    @property
    def config(self) -> TrainingConfig:
        """Its configuration, idle knobs at their defaults."""
        return canonical(TrainingConfig.from_mapping(self.trial.config))

    @property
    def run_ids(self) -> tuple[str, ...]:
        """Ids of its runs."""
        return tuple(run.id for run in self.runs)

    def numbers(self, name: str) -> list[float]:
        """A figure of the runs' measurements, where they have it."""
        return [each for run in self.runs if (each := _number(run.measurement.get(name))) is not None]

    def memory(self, name: str) -> int | None:
        """The largest of a memory figure over the runs; None where no run has it."""
        said = (_number((run.measurement.get("memory") or {}).get(name)) for run in self.runs)
        found = [each for each in said if each is not None]
        return int(max(found)) if found else None


def baseline_of(view: StudyView) -> Subject | None:
    """Trial 0, whatever became of it; None before it has ended."""
    trial = next((each for each in view.ended if each.number == 0), None)
    return None if trial is None else _subject(view, "baseline", trial)


def winner_of(view: StudyView) -> Subject | None:
    """The confirmed best, or the fastest of the front before there is one; None without either."""
    best = next((each for each in view.ended if each.id == view.answer.best), None)
    found = best or next(iter(view.front), None)
    return None if found is None else _subject(view, "winner", found)


def subjects(view: StudyView) -> tuple[Subject, ...]:
    """Baseline and winner; one of them where they are the same trial or the other is not there."""
    base, best = baseline_of(view), winner_of(view)
    if base is None or best is None or base.trial.id == best.trial.id:
        return tuple(each for each in (base or best,) if each is not None)
    return (base, best)


def measured(view: StudyView) -> tuple[Subject, ...]:
    """Those of them that have a measurement."""
    return tuple(each for each in subjects(view) if each.runs)


def words_for(view: StudyView, trial_id: int | None) -> str:
    """How a trial is called: ``baseline``, ``winner`` or ``trial 7``; ``study`` for none."""
    known = {each.trial.id: each.word for each in subjects(view)}
    number = next((each.number for each in view.ended if each.id == trial_id), None)
    return known.get(trial_id or -1) or ("study" if number is None else f"trial {number}")


def runs_of(view: StudyView, trial_id: int, purposes: Sequence[str] = MEASURING) -> Iterator[RunRecord]:
    """Runs of a trial with those purposes, however they ended, earliest first."""
    found = (run for run in view.runs if run.trial_id == trial_id and run.purpose in purposes)
    yield from sorted(found, key=lambda run: (run.started_at, run.id))


def device_kind(view: StudyView) -> str:
    """``cpu`` or ``cuda``."""
    return view.history.device_kind


def data_facts(view: StudyView) -> Mapping[str, Any]:
    """What preparing the data found; empty for an objective that prepares none."""
    return view.study.facts.get("data") or {}


def sequence_length(view: StudyView) -> int | None:
    """Tokens per row at most, as the spec says; None where it has none."""
    data = view.spec.objective.settings.get("data")
    found = data.get("sequence_length") if isinstance(data, Mapping) else None
    return found if isinstance(found, int) else None


def _subject(view: StudyView, word: str, trial: TrialRecord) -> Subject:
    done = (run for run in runs_of(view, trial.id) if run.outcome == "completed" and run.measurement)
    return Subject(word=word, trial=trial, runs=tuple(done))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
