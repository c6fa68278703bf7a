"""A study without processes: the pure core driven by a model of what each configuration does, on a fake clock."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from objectives.config import TrainingConfig, divisors
from objectives.contract import ObjectiveReference
from objectives.knobs import config_key, facts_to_mapping
from objectives.knobs.knob import Facts
from storage.records import RunRecord, StudyRecord, TrialRecord
from tuner.answer.confirm import next_confirmation
from tuner.answer.summary import summarise
from tuner.search.baseline import baseline_config
from tuner.search.batch import GlobalBatch
from tuner.search.samplers import SearchTask, make_proposer
from tuner.search.schedule import History, NextRun, next_run
from tuner.search.space import Space, make_space
from tuner.search.stopping import Stop
from tuner.spec.model import Limits, StudySpec

GIB = 2**30
START = datetime(2026, 1, 1, tzinfo=UTC)
METHODS = frozenset({"checkpoint_blocks", "set_attention", "set_loss", "set_batching", "set_tokens"})
FACTS = Facts(cores=8, workload_methods=METHODS)


def spec_of(**values: Any) -> StudySpec:
    made = {"study": "s", "objective": ObjectiveReference(kind="causal_lm"), "global_batch_size": 64, **values}
    return StudySpec(**made)


def trial_of(number: int, config: TrainingConfig | None = None, **values: Any) -> TrialRecord:
    config = config or TrainingConfig(micro_batch_size=number + 1)
    made = {"outcome": "completed", "throughput": 100.0, "peak_memory_bytes": GIB, "source": "tpe", **values}
    return TrialRecord(
        id=number + 1, study_id=1, number=number, config=config.to_mapping(), config_key=config_key(config),
        created_at=START + timedelta(seconds=10 * number), **made,
    )  # fmt: skip


def run_of(trial_id: int, throughput: float | None, at: float, purpose: str = "search", **values: Any) -> RunRecord:
    made = {"outcome": "completed", "seconds": 10.0, **values}
    return RunRecord(
        id=f"{purpose}-{trial_id}-{at}", study_id=1, trial_id=trial_id, purpose=purpose, throughput=throughput,
        started_at=START + timedelta(seconds=at), **made,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one run of a model gives."""

    outcome: str = "completed"
    throughput: float | None = None
    peak_bytes: int | None = None
    cause: str | None = None
    confidence: str = "certain"
    evidence: Mapping[str, Any] = field(default_factory=dict)


Model = Callable[[TrainingConfig, str, int], Result]
"""Configuration, purpose and how many runs were before it -> what the run gives."""


def fixture_1(limit_gib: float = 24.0, noise: float = 0.0, seed: int = 0) -> Model:
    """The capacity model of the handed cases, fixture 1."""
    chance = random.Random(seed)

    def model(config: TrainingConfig, _purpose: str, _before: int) -> Result:
        full, half = config.activation_checkpointing == "full", config.precision != "fp32"
        gib = 4 + 0.75 * config.micro_batch_size * (0.4 if full else 1) * (1 if half else 2)
        if gib > limit_gib:
            return Result(outcome="device_oom", cause="capacity", evidence={"signal": None, "chain": OOM_CHAIN})
        size = config.micro_batch_size
        speed = size / (0.02 + 0.004 * size) * (0.75 if full else 1) * (1.6 if half else 1)
        speed *= 0.85 if gib > 0.97 * limit_gib else 1
        return Result(throughput=speed * math.exp(chance.gauss(0, noise)), peak_bytes=int(gib * GIB))

    return model


OOM_CHAIN = [{"cls": "torch.OutOfMemoryError", "text": "CUDA out of memory. Tried to allocate 2.00 GiB"}]

CAPACITY = {
    "global_batch_size": 5040,
    "search": {
        "micro_batch_size": tuple(size for size in divisors(5040) if size <= 64),
        "precision": ("fp32", "bf16-mixed"),
        "activation_checkpointing": ("none", "full"),
    },
    "baseline": {"micro_batch_size": 4},
}
"""The spec of fixture 1."""


@dataclass(kw_only=True)
class FakeStudy:
    """Plays the worker: asks the schedule, lets the model answer, keeps the rows."""

    spec: StudySpec
    model: Model
    limit_bytes: int = 24 * GIB
    facts: Facts = FACTS
    trials: list[TrialRecord] = field(default_factory=list)
    runs: list[RunRecord] = field(default_factory=list)
    clock: float = 0.0
    stop: Stop | None = None

    def __post_init__(self) -> None:
        self.batch = GlobalBatch(samples=self.spec.global_batch_size, tokens=self.spec.global_batch_tokens)
        self.baseline = baseline_config(self.spec, self.facts, self.batch)
        self.space: Space = make_space(self.spec, self.facts, self.batch, self.baseline.config.knobs())
        task = SearchTask(space=self.space, seed=self.spec.seed, limit_bytes=self.limit_bytes)
        self.proposer = make_proposer(self.spec.sampler, task)

    @property
    def history(self) -> History:
        return History(trials=self.trials, runs=self.runs, elapsed_seconds=self.clock, limit_bytes=self.limit_bytes)

    def search(self, most_runs: int = 300) -> Stop:
        for _ in range(most_runs):
            decided = next_run(self.history, self.spec, self.space, self.baseline, self.proposer)
            assert decided is not None
            if isinstance(decided, Stop):
                self.stop = decided
                return decided
            self._run(decided)
        raise AssertionError("the search does not end")

    def confirm(self, most_runs: int = 100) -> None:
        limit = self.spec.limits.time_seconds
        for _ in range(most_runs):
            left = None if limit is None else limit - self.clock
            decided = next_confirmation(self.history, self.spec, left)
            if decided is None:
                return
            trial = next(each for each in self.trials if each.id == decided.trial_id)
            self._execute(trial, decided.config, "confirm", seconds=2 + decided.window_seconds)
        raise AssertionError("the confirmation does not end")

    def summary(self) -> dict[str, Any]:
        reason = None if self.stop is None else self.stop.reason
        study = StudyRecord(
            id=1, name=self.spec.study, status="finished", spec={}, identity={}, device="fake", stop_reason=reason,
            facts={"facts": facts_to_mapping(self.facts)}, memory_limit_bytes=self.limit_bytes, seconds=self.clock,
            created_at=START,
        )  # fmt: skip
        return summarise(study, self.trials, self.runs, self.spec)

    def _run(self, decided: NextRun) -> None:
        trial = next((each for each in self.trials if each.id == decided.trial_id), None)
        if trial is None:
            trial = trial_of(len(self.trials), decided.config, outcome=None, throughput=None, peak_memory_bytes=None,
                             source=decided.source)  # fmt: skip
            self.trials.append(trial)
        if decided.purpose == "search" and trial.outcome is not None:
            reopened = replace(trial, outcome=None, cause=None, confidence=None, evidence={})
            self.trials[self.trials.index(trial)] = trial = reopened
        run = self._execute(trial, decided.config, decided.purpose, seconds=2 + self.spec.limits.window_seconds)
        if trial.outcome is None:
            self._finish(trial, run)

    def _execute(self, trial: TrialRecord, config: TrainingConfig, purpose: str, seconds: float) -> RunRecord:
        result = self.model(config, purpose, len(self.runs))
        run = run_of(
            trial.id, result.throughput, self.clock, purpose, outcome=result.outcome, cause=result.cause,
            confidence=result.confidence, peak_memory_bytes=result.peak_bytes, evidence=result.evidence,
            seconds=seconds,
        )  # fmt: skip
        self.runs.append(run)
        self.clock += seconds
        return run

    def _finish(self, trial: TrialRecord, run: RunRecord) -> None:
        ended = replace(
            trial, outcome=run.outcome, cause=run.cause, confidence=run.confidence, throughput=run.throughput,
            peak_memory_bytes=run.peak_memory_bytes, evidence=run.evidence, seconds=run.seconds,
            throughput_unit=None if run.throughput is None else "tokens_per_second",
        )  # fmt: skip
        self.trials[self.trials.index(trial)] = ended


def limits_of(**values: Any) -> Limits:
    return Limits(**values)
