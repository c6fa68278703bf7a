"""What the data pipeline delivers by itself, measured once per loader setting and study, before the first trial."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from objectives.contract import SCRIPT
from storage import runs
from tuner.progress import Notice, Preparing
from tuner.search.capacities import Settings, capacities, distinct_settings, missing
from tuner.work.runner import Deadlines
from tuner.work.study_runs import study_run

if TYPE_CHECKING:
    from objectives.config import TrainingConfig
    from objectives.trial.protocol import Event
    from storage.records import RunRecord
    from tuner.search.baseline import Baseline
    from tuner.search.planner.observation import LoaderCapacity
    from tuner.search.space import Space
    from tuner.work.runner import RunEnd
    from tuner.work.session import Session

CAPACITY_SHARE = 0.04
"""Of the study's time limit, what measuring loaders may take ..."""
LEAST_SECONDS, MOST_SECONDS = 8.0, 60.0
"""... but so many seconds at least, and at most (without a limit, too). Settings that are left stay unknown."""
SECONDS_EACH = 1.0
ROOM_SECONDS = 60.0
"""A child that does not answer is ended so long after its time."""
TIME_IS_OVER = "loader_time"
"""Why a child that measures is asked to stop."""
USED_BY = frozenset({"auto"})
"""Samplers that know what to do with a capacity."""


def loader_capacities(session: Session, baseline: Baseline, space: Space) -> tuple[LoaderCapacity, ...]:
    """The capacity of every loader setting of the space, where it has more than one. What is stored is not measured.

    A capacity is an upper bound of the throughput with that setting: on a CPU it is measured beside as much computing
    as training does, and training still waits for more than its data.
    """
    if session.spec.sampler not in USED_BY or session.spec.objective.kind == SCRIPT:
        return ()
    wanted = distinct_settings(space)
    if len(wanted) < 2:
        return ()
    with session.database.lock(f"loader-{session.study.id}", wait_seconds=MOST_SECONDS) as held:
        left = missing(wanted, _stored(session))
        if held and left:
            _measure(session, _largest(baseline.config, space), left)
    return capacities(wanted, _stored(session))


def _stored(session: Session) -> Sequence[RunRecord]:
    return session.patiently(
        lambda: runs.list_of(session.database, study_id=session.study.id, purpose="loader_capacity")
    )


def _largest(baseline: TrainingConfig, space: Space) -> TrainingConfig:
    """The baseline with the space's largest micro-batch: fewest batches to hand over, so the most a loader can do."""
    sizes = [int(size) for size in space.values.get("micro_batch_size", ())]
    if not sizes:
        return baseline
    try:
        steps = space.batch.accumulation(micro_batch_size=max(sizes), batching=baseline.batching)
    except ValueError:
        return baseline
    return baseline.with_values(micro_batch_size=max(sizes), accumulation_steps=steps)


def _measure(session: Session, config: TrainingConfig, settings: Sequence[Settings]) -> None:
    limit = session.spec.limits.time_seconds
    share = MOST_SECONDS if limit is None else limit * CAPACITY_SHARE
    seconds = min(max(share, LEAST_SECONDS), MOST_SECONDS)
    session.report(Preparing(text=f"measuring what the data loader delivers with {len(settings)} settings"))
    request = session.request(
        "loader_capacity",
        session.lane,
        config=config.to_mapping(),
        global_batch_size=config.micro_batch_size * config.accumulation_steps,
        cap_memory=False,
        answer={"settings": [dict(each) for each in settings], "seconds": SECONDS_EACH},
    )
    ends_at = time.monotonic() + seconds

    def watch(_event: Event) -> str | None:
        return TIME_IS_OVER if time.monotonic() > ends_at else None

    deadline = seconds + ROOM_SECONDS
    end = study_run(session, request, Deadlines(trial_seconds=deadline, compile_seconds=deadline), watch, _measured)
    for text in dict.fromkeys(_reasons(end.answers)):
        session.report(Notice(text=f"a loader setting could not be measured alone: {text}"))


def _measured(end: RunEnd) -> Mapping[str, Any]:
    return {"capacities": [dict(answer) for answer in end.answers if "settings" in answer]}


def _reasons(answers: Iterable[Mapping[str, Any]]) -> list[str]:
    return [str(answer["reason"]) for answer in answers if answer.get("reason")]
