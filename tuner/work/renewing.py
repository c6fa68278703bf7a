"""``tuner confirm``: the confirmation of a study that has its answer, done again from nothing on this machine."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime

from storage import studies, trials
from tuner.answer.verdict import confirmation
from tuner.errors import StudyError, TightfitError
from tuner.search.renewal import FACT, current_runs
from tuner.search.schedule import History
from tuner.search.stopping import SEARCH_SHARE
from tuner.work.confirming import confirm
from tuner.work.longer_runs import Bench, say


def renew(bench: Bench) -> None:
    """Runs a whole confirmation: winner, baseline and rivals, as at a study's end. Then the old one stops counting.

    It may take what a study's confirmation may: its share of the time limit, two rounds at least.

    Raises:
        StudyError: Nothing in the study can be confirmed.
        TightfitError: It was stopped, or nothing could be confirmed; the old answer stands.
    """
    session = bench.session
    begun, since = time.monotonic(), datetime.now(UTC)
    limit = session.spec.limits.time_seconds
    share = None if limit is None else limit * (1 - SEARCH_SHARE)

    def history() -> History:
        whole = session.history()
        return replace(whole, runs=current_runs(whole.runs, since))

    def left() -> float | None:
        return None if share is None else share - (time.monotonic() - begun)

    if not bench.view.standing:
        raise StudyError(f"study {bench.view.study.name!r} has no measured configuration that fits: nothing to confirm")
    say(bench, f"confirming {bench.view.study.name!r} again: what it says from now on comes from these runs alone")
    if not confirm(session, history=history, seconds_left=left):
        raise TightfitError("the confirmation was stopped; the answer is what it was")
    if confirmation(history()).best is None:
        raise TightfitError("nothing could be confirmed this time: see `tuner show` for how the runs ended")
    _keep(bench, since, history())


def _keep(bench: Bench, since: datetime, history: History) -> None:
    """The old confirmation stops counting, and trials that only it had confirmed are unconfirmed."""
    database, study = bench.session.database, bench.view.study
    now = studies.get(database, study.id)
    studies.set_facts(database, study.id, {**now.facts, FACT: since.isoformat()})
    said = confirmation(history).intervals
    for trial in trials.list_of(database, study.id):
        if trial.confirmed and trial.id not in said:
            trials.update_fields(database, trial.id, confirmed=False, confirmed_throughput=None)
