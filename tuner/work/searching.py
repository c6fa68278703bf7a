"""The search phase: ask the schedule, run what it says, until it says stop. A thread a lane, one decision at a time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from objectives.knobs import config_key
from storage import trials
from tuner.progress import Best, Notice
from tuner.search.baseline import Baseline
from tuner.search.front import best_trial
from tuner.search.samplers import Proposer
from tuner.search.schedule import History, NextRun, next_run
from tuner.search.space import Space
from tuner.search.stopping import SEARCH_SHARE, Stop
from tuner.work import attempts

if TYPE_CHECKING:
    from storage.records import TrialRecord
    from tuner.work.lane import Lane
    from tuner.work.session import Session

WARM_LOAD_SECONDS = {"cpu": 3.0, "cuda": 30.0}
"""Load before the first window of a session: boost clocks and cold caches are not what training sees."""
WAIT_SECONDS = 0.2
"""A lane with nothing to do looks again after so long."""


class Search:
    """One session's search. Its lanes share what is decided; the store is the only memory."""

    def __init__(self, session: Session, space: Space, baseline: Baseline, proposer: Proposer) -> None:
        self._session, self._space, self._baseline, self._proposer = session, space, baseline, proposer
        self._predictions: Mapping[str, Mapping[str, Any]] = session.study.facts.get("predictions", {})
        self._deciding = threading.Lock()
        self._busy: dict[int, TrialRecord] = {}
        self._warm: set[int] = set()
        self._stopped: Stop | None = None
        self._error: BaseException | None = None

    def run(self) -> Stop | None:
        """Searches until the schedule stops it; None when a person did."""
        first, *others = self._session.lanes
        threads = [threading.Thread(target=self._guarded, args=(lane,), name=lane.device.uuid) for lane in others]
        for thread in threads:
            thread.start()
        self._guarded(first)
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error
        return self._stopped

    def _guarded(self, lane: Lane) -> None:
        try:
            self._work(lane)
        except BaseException as error:  # noqa: BLE001 - raised again by the session's own thread, in run()
            self._error = self._error or error

    def _work(self, lane: Lane) -> None:
        while not self._session.stop.is_set() and self._error is None:
            decided = self._decide()
            if isinstance(decided, Stop):
                return
            if decided is None:
                self._session.stop.wait(WAIT_SECONDS)
                continue
            run, trial = decided
            try:
                self._perform(lane, run, trial)
            finally:
                with self._deciding:
                    self._busy.pop(trial.id)
            self._report_best()

    def _decide(self) -> tuple[NextRun, TrialRecord] | Stop | None:
        """The next run with its trial, marked busy; or the end; or nothing for now."""
        with self._deciding:
            if self._stopped is not None:
                return self._stopped
            decided = next_run(self._history(), self._session.spec, self._space, self._baseline, self._proposer)
            if isinstance(decided, Stop):
                self._stopped = decided
                return decided
            trial = None if decided is None else self._trial_of(decided)
            if decided is None or trial is None:
                return None
            self._busy[trial.id] = trial
            return decided, trial

    def _history(self) -> History:
        return self._session.history(busy=frozenset(self._busy))

    def _trial_of(self, run: NextRun) -> TrialRecord | None:
        session = self._session
        if run.trial_id is not None:
            return trials.get(session.database, run.trial_id)
        key = config_key(run.config)
        return trials.reserve(
            session.database,
            study_id=session.study.id,
            config=run.config.to_mapping(),
            config_key=key,
            predicted_peak_memory_bytes=self._predictions.get(key, {}).get("peak_memory_bytes"),
            source=run.source,
            max_trials=session.spec.limits.trials,
        )

    def _perform(self, lane: Lane, run: NextRun, trial: TrialRecord) -> None:
        session = self._session
        if run.source == "baseline" and self._baseline.refused is not None and trial.outcome is None:
            self._refuse(trial, self._baseline.refused)
            return
        window = session.window()
        if id(lane) not in self._warm:
            self._warm.add(id(lane))
            window = replace(window, warm_load_seconds=WARM_LOAD_SECONDS[lane.device.kind])
        deadlines = session.deadlines(SEARCH_SHARE)
        if run.purpose == "repeat":
            attempts.further_window(session, lane, trial, "repeat", window, deadlines)
        else:
            attempts.search(session, lane, trial, window, deadlines)

    def _refuse(self, trial: TrialRecord, reason: str) -> None:
        """The baseline cannot run here: trial 0 says so without a run, and the study goes on without a comparison."""
        trials.finish(
            self._session.database,
            trial.id,
            outcome="unsupported",
            cause="invalid_config",
            confidence="certain",
            evidence={"text": reason},
        )
        self._session.report(Notice(text=f"the baseline cannot run on this machine: {reason}"))

    def _report_best(self) -> None:
        history = self._history()
        best = best_trial(history.finished, history.limit_bytes)
        if best is None or best.throughput is None:
            return
        base = next((each for each in history.finished if each.number == 0), None)
        known = base.throughput if base is not None and base.outcome == "completed" else None
        self._session.report(
            Best(
                number=best.number,
                throughput=best.throughput,
                unit=best.throughput_unit,
                speedup=best.throughput / known if known else None,
            )
        )
