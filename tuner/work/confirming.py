"""The confirmation phase: longer runs of the winner, its rivals and the baseline, interleaved on one quiet lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from objectives.trial.protocol import WindowPlan
from storage import trials
from tuner.answer.confirm import ConfirmRun, next_confirmation
from tuner.answer.verdict import confirmation
from tuner.progress import Confirming
from tuner.work import attempts

if TYPE_CHECKING:
    from tuner.work.session import Session

TIME_FACTOR = 3.0
"""A confirmation run may take so many times a search run's time: its window is twice as long, and it may evaluate."""


def confirm(session: Session) -> bool:
    """Runs the confirmation until its plan is done; marks what it confirmed. False when a person stopped it."""
    while not session.stop.is_set():
        run = next_confirmation(session.history(), session.spec, session.seconds_left())
        if run is None:
            _mark(session)
            return True
        _perform(session, run)
    return False


def _perform(session: Session, run: ConfirmRun) -> None:
    trial = trials.get(session.database, run.trial_id)
    session.report(
        Confirming(round=run.round, rounds=run.rounds, number=trial.number, seconds_left=session.seconds_left())
    )
    window = WindowPlan(min_seconds=run.window_seconds, max_seconds=run.window_seconds, target_half_width=0)
    deadlines = session.deadlines(factor=TIME_FACTOR, limited=False)
    attempts.further_window(session, session.lane, trial, "confirm", window, deadlines)


def _mark(session: Session) -> None:
    """Writes into the trials' rows what the confirmation says of them."""
    said = confirmation(session.history())
    for trial_id, interval in said.intervals.items():
        trials.update_fields(session.database, trial_id, confirmed=True, confirmed_throughput=interval.mean)
