"""Studies of planted workloads: real children, their ends stored as the worker stores them, and the doctor's view."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from script_runs import QUIET, SCRIPTS

from objectives.config import TrainingConfig
from objectives.contract import ObjectiveReference
from objectives.knobs import config_key, facts_to_mapping
from objectives.knobs.knob import Facts
from objectives.trial.protocol import RunRequest, WindowPlan
from storage.records import RunRecord, StudyRecord, TrialRecord
from tuner.answer.summary import StudyView
from tuner.spec.model import StudySpec
from tuner.work.attempts import stored_run, stored_trial
from tuner.work.launcher import Launcher
from tuner.work.runner import Deadlines, RunEnd, execute

PLANTED = Path(__file__).parent / "workloads" / "planted"
START = datetime(2026, 1, 1, tzinfo=UTC)
GLOBAL_BATCH = 16
LIMIT_BYTES = 2**31
WINDOW = WindowPlan(min_seconds=0.1, max_seconds=0.2, target_half_width=0.0)


class PlantedStudy:
    """Runs configurations of one objective and keeps their rows; the first is the baseline."""

    def __init__(self, launcher: Launcher, folder: Path, spec: StudySpec, machine: Mapping[str, Any] | None = None):
        self._launcher, self._folder, self._spec = launcher, folder, spec
        assert spec.global_batch_size is not None
        self._rows = spec.global_batch_size
        self._facts = Facts(**{"cores": 2, **(machine or {})})
        self._trials: list[TrialRecord] = []
        self._runs: list[RunRecord] = []

    def run(self, knobs: Mapping[str, Any], purpose: str = "search", window: WindowPlan = WINDOW) -> RunEnd:
        """One child of a configuration to its end."""
        config = TrainingConfig(**knobs)
        steps = self._rows // (config.micro_batch_size * self._spec.ranks)
        config = config.with_values(accumulation_steps=steps)
        request = RunRequest(
            run=str(uuid.uuid4()), purpose=purpose, objective=self._spec.objective, config=config.to_mapping(),  # type: ignore[arg-type]
            global_batch_size=self._rows, world_size=self._spec.ranks, window=window,
            memory_limit_bytes=LIMIT_BYTES, cap_memory=False,
        )  # fmt: skip
        end = execute(
            self._launcher,
            request,
            self._folder / f"{request.run}.log",
            Deadlines(trial_seconds=60, compile_seconds=60),
        )
        self._keep(config, request, end)
        return end

    def _keep(self, config: TrainingConfig, request: RunRequest, end: RunEnd) -> None:
        known = next((each for each in self._trials if each.config_key == config_key(config)), None)
        if known is None:
            number = len(self._trials)
            known = TrialRecord(
                id=number + 1, study_id=1, number=number, config=config.to_mapping(), config_key=config_key(config),
                source="auto", outcome=end.verdict.outcome, created_at=START,
                **stored_trial(end, end.verdict, LIMIT_BYTES),
            )  # fmt: skip
            self._trials.append(known)
        run = RunRecord(
            id=request.run, study_id=1, trial_id=known.id, purpose=request.purpose, outcome=end.verdict.outcome,
            started_at=START + timedelta(seconds=len(self._runs)), **stored_run(end, end.verdict),
        )  # fmt: skip
        self._runs.append(run)

    @property
    def view(self) -> StudyView:
        """The study as the doctor sees it."""
        record = StudyRecord(
            id=1, name="planted", status="finished", spec={}, identity={}, created_at=START, device="cpu",
            memory_limit_bytes=LIMIT_BYTES, facts={"facts": facts_to_mapping(self._facts)},
        )  # fmt: skip
        return StudyView(study=record, trials=self._trials, runs=self._runs, spec=self._spec)


def two_ranks(folder: Path, *words: str) -> StudyView:
    """One run of the planted script over two ranks."""
    settings = {"command": ["python", "planted_ranks.py", *words], "ranks": 2, "environment": QUIET}
    reference = ObjectiveReference(kind="script", settings=settings, folder=str(SCRIPTS))
    with Launcher() as launcher:
        study = PlantedStudy(launcher, folder, StudySpec(study="planted", objective=reference, global_batch_size=4))
        study.run({"micro_batch_size": 2}, window=WindowPlan(min_seconds=0.5, max_seconds=0.5))
    return study.view


def planted(
    launcher: Launcher,
    folder: Path,
    objective: str,
    configs: Sequence[Mapping[str, Any]],
    *,
    repeats: int = 2,
    purpose: str | None = None,
    machine: Mapping[str, Any] | None = None,
    window: WindowPlan = WINDOW,
) -> StudyView:
    """The study of a planted objective (``"module:Class"``): every configuration ``repeats`` times, interleaved.

    ``purpose`` adds one run of the first configuration with that purpose.
    """
    reference = ObjectiveReference(kind=objective, folder=str(PLANTED))
    spec = StudySpec(study="planted", objective=reference, global_batch_size=GLOBAL_BATCH)
    study = PlantedStudy(launcher, folder, spec, machine)
    for turn in range(repeats):
        for knobs in configs:
            study.run(knobs, "repeat" if turn else "search", window)
    if purpose is not None:
        study.run(configs[0], purpose, window)
    return study.view
