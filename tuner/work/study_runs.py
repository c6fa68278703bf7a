"""One run that belongs to a study and to none of its trials: what its device can run, what its space will need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from storage import runs
from tuner.work.outbox import Result

if TYPE_CHECKING:
    from objectives.trial.protocol import RunRequest
    from tuner.work.runner import Deadlines, RunEnd, Watch
    from tuner.work.session import Session


def study_run(
    session: Session,
    request: RunRequest,
    deadlines: Deadlines,
    watch: Watch,
    measured: Callable[[RunEnd], Mapping[str, Any]] = lambda _end: {},
) -> RunEnd:
    """Runs one child on the session's first lane; its start and its end are stored like those of a trial's run.

    Args:
        session: The study's.
        request: What the child is asked.
        deadlines: How long it may take.
        watch: Sees its events.
        measured: What is kept of its end as the run's measurement.
    """
    session.patiently(
        lambda: runs.start(
            session.database, id=request.run, study_id=session.study.id, purpose=request.purpose,
            worker_id=session.worker_id,
        )
    )  # fmt: skip
    end = session.execute(session.lane, request, deadlines, watch)
    verdict = end.verdict
    session.store(
        Result(
            run=request.run,
            outcome=verdict.outcome,
            fields={
                "cause": verdict.cause,
                "confidence": verdict.confidence,
                "evidence": {**end.evidence, "text": verdict.text, "advice": verdict.advice},
                "seconds": end.seconds,
                "measurement": measured(end),
            },
        )
    )
    return end
