"""The confirmation phase: longer runs of the winner, its rivals and the baseline, interleaved on one quiet lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from objectives.trial.protocol import WindowPlan
from storage import trials
from tuner.answer.confirm import ConfirmRun, next_confirmation
from tuner.answer.verdict import confirmation
from tuner.progress import Confirming
from tuner.work import attempts
from tuner.work.trial_runs import Begun, begin

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuner.search.schedule import History
    from tuner.work.session import Session

TIME_FACTOR = 3.0
"""A confirmation run may take so many times a search run's time: its window is twice as long, and it may evaluate."""


def confirm(
    session: Session,
    *,
    history: Callable[[], History] | None = None,
    seconds_left: Callable[[], float | None] | None = None,
) -> bool:
    """Runs the confirmation until its plan is done; marks what it confirmed. False when there was a reason to leave.

    Args:
        session: The study's.
        history: The study as the plan shall see it; None for as it stands.
        seconds_left: Of the time the confirmation may take; None for what is left of the study's.
    """
    seen, left = history or session.history, seconds_left or session.seconds_left
    while not session.stop.is_set() and session.acquire(session.lane):
        planned = session.patiently(lambda: _begin(session, seen(), left()))
        if planned is None:
            session.lane.release()
            session.patiently(lambda: _mark(session, seen()))
            return True
        run, begun = planned
        session.report(Confirming(round=run.round, rounds=run.rounds, number=begun.trial.number, seconds_left=left()))
        deadlines = session.deadlines(factor=TIME_FACTOR, limited=False)
        attempts.further_window(session, session.lane, begun, deadlines)
    session.lane.release()
    return False


def _begin(session: Session, history: History, seconds_left: float | None) -> tuple[ConfirmRun, Begun] | None:
    """The plan's next run, its row stored; None when the plan is done."""
    run = next_confirmation(history, session.spec, seconds_left)
    if run is None:
        return None
    window = WindowPlan(min_seconds=run.window_seconds, max_seconds=run.window_seconds, target_half_width=0)
    return run, begin(session, session.lane, trials.get(session.database, run.trial_id), "confirm", window)


def _mark(session: Session, history: History) -> None:
    """Writes into the trials' rows what the confirmation says of them."""
    said = confirmation(history)
    for trial_id, interval in said.intervals.items():
        trials.update_fields(session.database, trial_id, confirmed=True, confirmed_throughput=interval.mean)
