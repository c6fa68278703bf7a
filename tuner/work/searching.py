"""The search phase: ask the schedule, run what it says, until it says stop. A thread a lane, one decision at a time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from objectives.knobs import config_key
from objectives.trial.outcome import INFRA_ATTEMPTS
from storage import trials
from tuner.progress import Best, Notice
from tuner.search.baseline import Baseline
from tuner.search.front import best_trial
from tuner.search.samplers import Proposer
from tuner.search.schedule import History, NextRun, next_run
from tuner.search.space import Space
from tuner.search.stopping import SEARCH_SHARE, Stop
from tuner.work import attempts
from tuner.work.trial_runs import Begun, begin

if TYPE_CHECKING:
    from objectives.trial.protocol import WindowPlan
    from storage.records import TrialRecord
    from tuner.work.lane import Lane
    from tuner.work.session import Session

WARM_LOAD_SECONDS = {"cpu": 3.0, "cuda": 30.0}
"""Load before the first window of a session: boost clocks and cold caches are not what training sees."""
WAIT_SECONDS = 0.2
"""A lane with nothing to do looks again after so long."""


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A decided run with its stored row."""

    run: NextRun
    begun: Begun
    window: WindowPlan


class Search:
    """One process's part in a study's search. What is decided is decided by one at a time; the store is the memory."""

    def __init__(self, session: Session, space: Space, baseline: Baseline, proposer: Proposer) -> None:
        self._session, self._space, self._baseline, self._proposer = session, space, baseline, proposer
        self._predictions: Mapping[str, Mapping[str, Any]] = session.study.facts.get("predictions", {})
        self._warm: set[int] = set()
        self._stopped: Stop | None = None
        self._error: BaseException | None = None

    def run(self) -> Stop | None:
        """Searches until the schedule stops it; None when there was a reason to leave before."""
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
            self._session.patiently(lambda: self._session.look(self._session, False))
            if self._session.stop.is_set() or not self._session.acquire(lane):
                return
            try:
                decided = self._session.patiently(lambda: self._decide(lane))
            except BaseException:
                lane.release()
                raise
            if isinstance(decided, Ready):
                self._perform(lane, decided)
                self._session.patiently(self._report_best)
                continue
            lane.release()
            if isinstance(decided, Stop):
                return
            self._session.wait_for_others(WAIT_SECONDS)

    def _decide(self, lane: Lane) -> Ready | Stop | None:
        """The next run, its row stored; or the end; or nothing for now."""
        with self._session.deciding() as deciding:
            if not deciding:
                return None
            if self._stopped is not None:
                return self._stopped
            history = self._session.history()
            if self._give_up(history):
                return None
            decided = next_run(history, self._session.spec, self._space, self._baseline, self._proposer)
            if isinstance(decided, Stop):
                return self._end(decided, history)
            trial = None if decided is None else self._trial_of(decided)
            return None if decided is None or trial is None else self._begin(lane, decided, trial)

    def _end(self, stop: Stop, history: History) -> Stop | None:
        """The end, once the last run in progress elsewhere has ended: it may still change the answer."""
        if self._session.shared and history.busy:
            return None
        self._stopped = stop
        return stop

    def _give_up(self, history: History) -> bool:
        """A trial whose runs machines have failed often enough ends with that. Whether there was one."""
        for trial in history.running:
            lost = [run for run in history.runs_of(trial.id, "search") if run.outcome == "infra"]
            if trial.id in history.busy or len(lost) < INFRA_ATTEMPTS:
                continue
            last = lost[-1]
            trials.finish(
                self._session.database, trial.id, outcome="infra", cause=last.cause, confidence="certain",
                evidence={"text": f"{len(lost)} runs were lost; the last: {last.evidence.get('text', '')}"},
            )  # fmt: skip
            return True
        return False

    def _trial_of(self, run: NextRun) -> TrialRecord | None:
        session = self._session
        if run.trial_id is not None:
            trial = trials.get(session.database, run.trial_id)
            again = run.purpose == "search" and trial.outcome is not None
            return trials.reopen_one(session.database, trial.id) if again else trial
        key = config_key(run.config)
        return trials.reserve(
            session.database,
            study_id=session.study.id,
            config=run.config.to_mapping(),
            config_key=key,
            predicted_peak_memory_bytes=self._predictions.get(key, {}).get("peak_memory_bytes"),
            source=run.source,
            max_trials=session.spec.limits.trials,
            worker_id=session.worker_id,
        )

    def _begin(self, lane: Lane, run: NextRun, trial: TrialRecord) -> Ready | None:
        if run.source == "baseline" and self._baseline.refused is not None and trial.outcome is None:
            self._refuse(trial, self._baseline.refused)
            return None
        window = self._session.window()
        if id(lane) not in self._warm:
            self._warm.add(id(lane))
            window = replace(window, warm_load_seconds=WARM_LOAD_SECONDS[lane.device.kind])
        begun = begin(self._session, lane, trial, "repeat" if run.purpose == "repeat" else "search", window)
        return Ready(run=run, begun=begun, window=window)

    def _perform(self, lane: Lane, ready: Ready) -> None:
        deadlines = self._session.deadlines(SEARCH_SHARE)
        if ready.run.purpose == "repeat":
            attempts.further_window(self._session, lane, ready.begun, deadlines)
        else:
            attempts.search(self._session, lane, ready.begun, ready.window, deadlines)

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
        history = self._session.history()
        best = best_trial(history.standing, history.limit_bytes)
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
