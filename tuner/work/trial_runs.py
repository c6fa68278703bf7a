"""One run of a trial: its row while it is decided, its child afterwards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from objectives.config import TrainingConfig
from storage import runs
from tuner.progress import TrialStarted
from tuner.work.dominance import DominanceWatch
from tuner.work.session import Reporter, Session, trial_ended

if TYPE_CHECKING:
    from objectives.trial.protocol import Purpose, RunRequest, WindowPlan
    from storage.records import TrialRecord
    from tuner.search.pruning import PruningRule
    from tuner.work.lane import Lane
    from tuner.work.runner import Deadlines, RunEnd


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A run whose row is stored and whose child has not started yet.

    Attributes:
        attempt: Its number among the trial's runs of that purpose.
        tries: The same without those that somebody stopped.
    """

    trial: TrialRecord
    request: RunRequest
    attempt: int
    tries: int


def begin(
    session: Session,
    lane: Lane,
    trial: TrialRecord,
    purpose: Purpose,
    window: WindowPlan,
    *,
    memory_limit_bytes: int | None = None,
) -> Begun:
    """Stores a run: from now on the trial is busy. Call it while :meth:`Session.deciding`.

    Args:
        session: The study's.
        lane: Where it will run.
        trial: As stored.
        purpose: ``search``, ``repeat`` or ``confirm``.
        window: How long it measures.
        memory_limit_bytes: Another cap than the study's limit (a doubtful signal near the cap gets more room).
    """
    before = runs.list_of(session.database, trial_id=trial.id, purpose=purpose)
    config = TrainingConfig.from_mapping(trial.config)
    request = session.request(
        purpose,
        lane,
        config=config.to_mapping(),
        global_batch_size=config.micro_batch_size * config.accumulation_steps * session.spec.ranks,
        world_size=session.spec.ranks,
        window=window,
    )
    if memory_limit_bytes is not None:
        request = replace(request, memory_limit_bytes=memory_limit_bytes)
    made = Begun(
        trial=trial,
        request=request,
        attempt=1 + len(before),
        tries=1 + sum(run.outcome != "cancelled" for run in before),
    )
    runs.start(
        session.database,
        id=request.run,
        study_id=session.study.id,
        trial_id=trial.id,
        purpose=purpose,
        attempt=made.attempt,
        worker_id=session.worker_id,
    )
    return made


def carry_out(
    session: Session, lane: Lane, begun: Begun, deadlines: Deadlines, rule: PruningRule | None = None
) -> RunEnd:
    """Runs the child to its end.

    Args:
        session: The study's.
        lane: Where.
        begun: The run.
        deadlines: How long it may take.
        rule: Stops it once it is dominated; None never does.
    """
    trial, purpose = begun.trial, begun.request.purpose
    session.report(
        TrialStarted(
            number=trial.number,
            config=trial.config,
            purpose=purpose,
            run=begun.request.run,
            predicted_peak_memory_bytes=trial.predicted_peak_memory_bytes,
            seconds_left=session.seconds_left(),
        )
    )
    pruner = None if rule is None else DominanceWatch(rule=rule)
    watch = Reporter(session=session, trial=trial, pruner=pruner).watch
    end = session.execute(lane, begun.request, deadlines, watch)
    end = end if pruner is None else pruner.judge(end)
    session.report(replace(trial_ended(trial, purpose, end, session.seconds_left()), run=begun.request.run))
    return end
