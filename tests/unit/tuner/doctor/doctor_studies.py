"""Small studies as the store would hold them: each trial says what it measured, the rest follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from objectives.config import TrainingConfig
from objectives.contract import ObjectiveReference
from objectives.knobs import config_key, facts_to_mapping
from objectives.knobs.knob import Facts
from storage.records import RunRecord, StudyRecord, TrialRecord
from tuner.answer.summary import StudyView
from tuner.doctor import diagnose
from tuner.doctor.check import CheckResult, Finding
from tuner.spec.model import StudySpec

GIB = 2**30
START = datetime(2026, 1, 1, tzinfo=UTC)
WOBBLE = (1.0, 1.004, 0.996)
"""Throughput of the three windows of each trial, relative."""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One trial: its knobs, what it measured; ``said`` joins the measurement of each of its runs."""

    knobs: Mapping[str, Any] = field(default_factory=dict)
    rate: float | None = 1000.0
    peak: float | None = 4.0
    outcome: str = "completed"
    cause: str | None = None
    said: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)


def study(
    *tried: Tried,
    longer: Sequence[RunRecord] = (),
    device: str = "cpu",
    limit_gib: float | None = 8.0,
    machine: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
    predictions: Mapping[str, Any] | None = None,
    **spec: Any,
) -> StudyView:
    """A study of these trials; trial 0 is the baseline."""
    made = {"study": "s", "objective": ObjectiveReference(kind="causal_lm"), "global_batch_size": 64, **spec}
    facts = Facts(device_kind=device, **{"cores": 8, **(machine or {})})  # type: ignore[arg-type]
    settings = StudySpec(**made)
    trials = [trial(number, each, settings) for number, each in enumerate(tried)]
    runs = [run for number, each in enumerate(tried) for run in runs_of(number, each)]
    record = StudyRecord(
        id=1, name="s", status="finished", spec={}, identity={}, created_at=START, device="device",
        memory_limit_bytes=None if limit_gib is None else int(limit_gib * GIB),
        facts={"facts": facts_to_mapping(facts), "data": data or {}, "predictions": predictions or {}},
    )  # fmt: skip
    return StudyView(study=record, trials=trials, runs=[*runs, *longer], spec=settings)


def config_of(tried: Tried, spec: StudySpec) -> TrainingConfig:
    config = TrainingConfig(**{"micro_batch_size": 8, **tried.knobs})
    if "accumulation_steps" in tried.knobs or spec.global_batch_size is None:
        return config
    return config.with_values(accumulation_steps=spec.global_batch_size // (config.micro_batch_size * spec.ranks))


def trial(number: int, tried: Tried, spec: StudySpec) -> TrialRecord:
    config = config_of(tried, spec)
    peak = None if tried.peak is None else int(tried.peak * GIB)
    return TrialRecord(
        id=number + 1, study_id=1, number=number, config=config.to_mapping(), config_key=config_key(config),
        source="auto", outcome=tried.outcome, cause=tried.cause, confidence="certain", throughput=tried.rate,
        throughput_unit="tokens_per_second", peak_memory_bytes=peak, evidence=tried.evidence,
        windows=len(WOBBLE), created_at=START + timedelta(seconds=number),
    )  # fmt: skip


def runs_of(number: int, tried: Tried) -> list[RunRecord]:
    """Three windows of a completed trial, one run of another, interleaved over the study."""
    done = tried.outcome == "completed" and tried.rate is not None
    return [
        run(
            "search" if not turn else "repeat",
            trial_id=number + 1,
            at=100.0 * turn + number,
            outcome=tried.outcome,
            cause=tried.cause,
            throughput=tried.rate * factor if done else None,
            peak_memory_bytes=None if tried.peak is None else int(tried.peak * GIB),
            measurement={"relative_standard_error": 0.005, "memory": dict(tried.memory), **tried.said} if done else {},
            evidence=tried.evidence,
        )
        for turn, factor in enumerate(WOBBLE if done else WOBBLE[:1])
    ]


def run(purpose: str, *, trial_id: int | None = None, at: float = 500.0, **values: Any) -> RunRecord:
    made = {"outcome": "completed", "seconds": 10.0, **values}
    return RunRecord(
        id=f"{purpose}-{trial_id}-{at:g}", study_id=1, trial_id=trial_id, purpose=purpose,
        started_at=START + timedelta(seconds=at), **made,
    )  # fmt: skip


def check(view: StudyView, name: str) -> CheckResult:
    """One check's result."""
    return next(each for each in diagnose(view).checks if each.name == name)


def finding(view: StudyView, name: str, question: str) -> Finding:
    """One finding of a check."""
    return next(each for each in check(view, name).findings if each.name == question)


def figure(found: Finding, name: str, of: str | None = None) -> Any:
    """A figure's value."""
    return next(each.value for each in found.figures if each.name == name and of in (None, each.of))
