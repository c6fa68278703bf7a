"""Drives Tightfit's own search on a table: rows in, decisions out, as the worker does it, without processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property

from benchmarks.replay.oracle import Observation, Replay, Watch
from benchmarks.replay.product_space import table_space
from benchmarks.replay.pruned import watched
from benchmarks.replay.row import Row
from objectives.config import TrainingConfig
from objectives.contract import ObjectiveReference
from objectives.knobs import config_key
from storage.records import RunRecord, TrialRecord
from tuner.answer.confirm import next_confirmation
from tuner.answer.verdict import confirmation
from tuner.search.baseline import Baseline
from tuner.search.front import best_trial
from tuner.search.memory_model import Points, learn
from tuner.search.planner.observation import Earlier
from tuner.search.pruning import rule_for
from tuner.search.samplers import Proposer, SearchTask, make_proposer
from tuner.search.schedule import History, NextRun, next_run
from tuner.search.stopping import Stop
from tuner.spec.model import StudySpec

START = datetime(2026, 1, 1, tzinfo=UTC)
SAMPLER = "auto"
CAUSES = {"device_oom": "capacity"}


class ProductStudy:
    """One study of the product over a table."""

    def __init__(
        self, replay: Replay, *, predicts: bool = True, prunes: bool = True, earlier: Sequence[Earlier] = ()
    ) -> None:
        self.replay, self.predicts, self.prunes = replay, predicts, prunes
        self.earlier = tuple(earlier)
        self.space = table_space(replay.table)
        self.trials: list[TrialRecord] = []
        self.runs: list[RunRecord] = []
        self.baseline = Baseline(config=self.space.config_of(replay.baseline))
        self.spec = StudySpec(
            study=replay.table.name,
            objective=ObjectiveReference(kind="causal_lm"),
            global_batch_size=replay.table.global_batch_size,
            baseline=self.baseline.config.knobs(),
            search=self.space.values,
            sampler=SAMPLER,
            seed=replay.seed,
        )
        self._keep(self._reserve(self.baseline.config, "baseline"), replay.first, "search")

    def search(self) -> Stop:
        """Until the product stops: search, then confirmation; the confirmed best is the answer. All of it is charged.

        A confirmation run is one more recorded run: half as long as the product's own, so its answer is a little worse.
        """
        while not isinstance(decided := self._decide(), Stop):
            assert decided is not None, "nothing runs elsewhere: there is always a decision"
            self._run(decided)
        while (run := next_confirmation(self._history(), self.spec, None)) is not None:
            trial = next(each for each in self.trials if each.id == run.trial_id)
            self._keep(trial, self.replay.ask(self.space.row_of(trial.config_key)), "confirm")
        self.replay.stop(self._answer())
        return decided

    def _answer(self) -> Row | None:
        history = self._history()
        confirmed = confirmation(history).best
        best = next((each for each in self.trials if each.id == confirmed), None)
        best = best or best_trial(history.standing, self.replay.limit_bytes)
        return None if best is None else self.space.row_of(best.config_key)

    def _decide(self) -> NextRun | Stop | None:
        return next_run(self._history(), self.spec, self.space, self.baseline, self._proposer)

    @cached_property
    def _proposer(self) -> Proposer:
        predicted = self._predicted()
        return make_proposer(
            SAMPLER,
            SearchTask(
                space=self.space,
                seed=self.replay.seed,
                limit_bytes=self.replay.limit_bytes,
                predicted_misfits=self._certain_misfits(predicted),
                predicted_peak_bytes=predicted,
                earlier=self.earlier,
                device_kind=self.replay.table.device_kind,
            ),
        )

    def _predicted(self) -> dict[str, int]:
        """Raw predicted peaks by configuration key; empty where they must not be seen."""
        if not self.predicts:
            return {}
        found = {key: row.predicted_bytes for key, (_, row) in self.space.members.items()}
        return {key: peak for key, peak in found.items() if peak is not None}

    def _certain_misfits(self, predicted: Mapping[str, int]) -> frozenset[str]:
        """What is left out before the first run, as the worker does: certain by the memory model's prior alone."""
        if not predicted:
            return frozenset()
        configs = [self.space.members[key][0] for key in predicted]
        model = learn((), device_kind=self.replay.table.device_kind)
        bars = model.predict_many(Points.of(configs, list(predicted.values())), self.replay.limit_bytes)
        return frozenset(key for key, misfit in zip(predicted, bars.certain_misfit, strict=True) if misfit)

    def _history(self) -> History:
        return History(
            trials=self.trials,
            runs=self.runs,
            elapsed_seconds=self.replay.clock,
            limit_bytes=self.replay.limit_bytes,
            device_kind=self.replay.table.device_kind,
        )

    def _run(self, decided: NextRun) -> None:
        known = next((each for each in self.trials if each.id == decided.trial_id), None)
        trial = known or self._reserve(decided.config, decided.source)
        watch = self._watch(trial) if decided.purpose == "search" else None
        seen = self.replay.ask(self.space.row_of(trial.config_key), watch)
        self._keep(trial, seen, decided.purpose)

    def _watch(self, trial: TrialRecord) -> Watch | None:
        """The product's pruning rule for this run; None where it must not be stopped, or has no recorded steps."""
        row = self.space.row_of(trial.config_key)
        if not self.prunes or not row.step_seconds or row.peak_bytes is None:
            return None
        window = sum(row.step_seconds)
        rule = rule_for(self._history(), trial, sampler=SAMPLER, window_seconds=window)
        return None if rule is None else watched(rule, row)

    def _reserve(self, config: TrainingConfig, source: str) -> TrialRecord:
        key = config_key(config)
        trial = TrialRecord(
            id=len(self.trials) + 1,
            study_id=1,
            number=len(self.trials),
            config=config.to_mapping(),
            config_key=key,
            source=source,
            predicted_peak_memory_bytes=self.space.row_of(key).predicted_bytes if self.predicts else None,
            created_at=self._now,
        )
        self.trials.append(trial)
        return trial

    @property
    def _now(self) -> datetime:
        return START + timedelta(seconds=self.replay.clock)

    def _keep(self, trial: TrialRecord, seen: Observation, purpose: str) -> None:
        """Stores a run, and for a search run the trial's end, as the worker does."""
        row = seen.row
        self.runs.append(
            RunRecord(
                id=f"run-{seen.number:04}",
                study_id=1,
                trial_id=trial.id,
                purpose=purpose,
                outcome=seen.outcome,
                cause=CAUSES.get(seen.outcome),
                confidence="certain",
                throughput=seen.throughput,
                peak_memory_bytes=seen.peak_bytes,
                measurement=_measurement(seen),
                step_seconds=seen.step_seconds,
                seconds=seen.seconds,
                started_at=START + timedelta(seconds=seen.started),
                finished_at=START + timedelta(seconds=seen.started + seen.seconds),
            )
        )
        if purpose != "search":
            return
        self.trials[trial.number] = replace(
            trial,
            outcome=seen.outcome,
            cause=CAUSES.get(seen.outcome),
            confidence="certain",
            throughput=seen.throughput,
            throughput_unit=self.replay.table.unit,
            windows=int(seen.completed),
            peak_memory_bytes=seen.peak_bytes,
            metrics=_measurement(seen) | {"data_stall_share": row.data_stall_share if seen.completed else None},
            evidence={"memory_limit_bytes": self.replay.limit_bytes},
            seconds=seen.seconds,
            finished_at=self._now,
        )


def _measurement(seen: Observation) -> dict[str, float | None]:
    """What the run's measurement said beside throughput and peak, as far as the row has it."""
    row = seen.row
    relative = row.standard_error / row.throughput if row.standard_error and row.throughput else None
    found = {
        "relative_standard_error": relative if seen.completed else None,
        "setup_seconds": row.setup_seconds,
        "compile_seconds": row.compile_seconds,
    }
    return {name: value for name, value in found.items() if value is not None}
