"""A trial from its first attempt to its one outcome, and its further windows later. Every run's end is stored."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any

from objectives.measure.flops import measurement_fault, mfu, peak_flops_per_second
from objectives.trial.outcome import Verdict, judge_measurement, should_retry
from storage import runs, trials
from tuner.search.pruning import rule_for
from tuner.work.outbox import Result
from tuner.work.runner import Deadlines, RunEnd
from tuner.work.session import Session, peak_of
from tuner.work.trial_runs import Begun, begin, carry_out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from objectives.trial.protocol import WindowPlan
    from storage.records import RunEnd as StoredRun
    from storage.records import TrialEnd as StoredTrial
    from storage.records import TrialRecord
    from tuner.work.lane import Lane

CUT_SHORT = frozenset({"study_time"})
"""Why we end a run that nobody asked to stop and that did nothing wrong."""


def search(session: Session, lane: Lane, begun: Begun, window: WindowPlan, deadlines: Deadlines) -> None:
    """Runs a trial until it has its outcome; one that is stopped, or that its machine failed, is tried again later.

    A retry with fewer loader workers is another configuration, and so another trial: the schedule proposes it. Where
    there are none to spare, the same configuration gets its one more attempt.

    Args:
        session: The study's.
        lane: Where.
        begun: The run.
        window: How long it measures.
        deadlines: How long it may take.
    """
    trial, raised = begun.trial, False
    rule = rule_for(session.history(), trial, sampler=session.spec.sampler, window_seconds=window.max_seconds)
    while True:
        end = carry_out(session, lane, begun, deadlines, rule)
        verdict = judged(session, end, capped=raised)
        retry = should_retry(verdict, begun.tries)
        fewer = retry is not None and retry.how == "fewer_workers" and trial.config.get("loader_workers") != 0
        if retry is None or fewer or retry.how == "elsewhere" or session.stop.is_set():
            store_end(session, begun, end, verdict, ends_trial=retry is None or retry.how != "elsewhere")
            return
        raised = retry.how == "raised_cap"
        begun = _again(session, lane, begun, window, end, verdict, retry.cap_factor if raised else None)


def _again(
    session: Session,
    lane: Lane,
    begun: Begun,
    window: WindowPlan,
    end: RunEnd,
    verdict: Verdict,
    cap_factor: float | None,
) -> Begun:
    """Stores one run's end and starts the next; nobody sees the trial without a run in between."""
    limit = session.study.memory_limit_bytes
    raised = int(limit * cap_factor) if limit is not None and cap_factor is not None else None
    with session.deciding():
        store_end(session, begun, end, verdict, ends_trial=False)
        return session.patiently(lambda: begin(session, lane, begun.trial, "search", window, memory_limit_bytes=raised))


def store_end(session: Session, begun: Begun, end: RunEnd, verdict: Verdict, *, ends_trial: bool) -> None:
    """Stores a run's end, and its trial's with it unless the trial goes on. The only way a run of a trial ends.

    A run that a person, a drain or the study's own time cut short says nothing about its trial, which is handed back;
    with a study that is cancelled it ends.
    """
    stopped = session.stop.is_set() or end.ending.kill_reason in CUT_SHORT
    if verdict.outcome == "cancelled" and stopped:
        ends_trial = session.stop.why == "cancelled" and begun.request.purpose == "search"
    trial = stored_trial(end, verdict, session.study.memory_limit_bytes) if ends_trial else {}
    session.store(
        Result(
            run=begun.request.run,
            outcome=verdict.outcome,
            fields=stored_run(end, verdict),
            trial_id=begun.trial.id if ends_trial else None,
            trial=trial,
        )
    )


def further_window(session: Session, lane: Lane, begun: Begun, deadlines: Deadlines) -> Verdict:
    """One more run of a finished trial: a repeat or a part of the confirmation. A repeat joins the trial's mean."""
    end = carry_out(session, lane, begun, deadlines)
    verdict = judged(session, end, capped=False)
    store_end(session, begun, end, verdict, ends_trial=False)
    if begun.request.purpose == "repeat" and verdict.outcome == "completed":
        session.patiently(lambda: _join(session, begun.trial))
    return verdict


def _join(session: Session, trial: TrialRecord) -> None:
    """The trial's throughput becomes the geometric mean over its windows, its peak the largest of them."""
    measured = [
        run
        for run in runs.list_of(session.database, trial_id=trial.id)
        if run.purpose in ("search", "repeat") and run.outcome == "completed" and run.throughput
    ]
    mean = math.exp(fmean(math.log(run.throughput or 1.0) for run in measured))
    own = fmean(float(run.measurement.get("relative_standard_error") or 0.0) ** 2 for run in measured)
    trials.update_fields(
        session.database,
        trial.id,
        throughput=mean,
        throughput_standard_error=mean * math.sqrt(own / len(measured)),
        windows=len(measured),
        peak_memory_bytes=max((run.peak_memory_bytes or 0 for run in measured), default=None),
        seconds=sum(run.seconds for run in measured),
    )


def judged(session: Session, end: RunEnd, *, capped: bool) -> Verdict:
    """The run's verdict after a look at its measurement: memory that only seemed to fit, steps that did not train.

    Args:
        session: For the device and the limit.
        end: The run's end.
        capped: Whether it ran under a raised cap, so that the measured peak decides.
    """
    if end.verdict.outcome != "completed" or not end.measurement:
        return end.verdict
    if (fault := measurement_fault(_mfu(end))) is not None:
        return Verdict(outcome="crashed", cause="corrupt", text=fault)
    steps = int(end.measurement.get("blocks") or 0)
    skipped = int(end.measurement.get("skipped_steps") or 0)
    memory: Mapping[str, Any] = end.measurement.get("memory") or {}
    return judge_measurement(
        peak_bytes=peak_of(end),
        capacity_bytes=session.lane.device.total_memory_bytes,
        cap_bytes=session.study.memory_limit_bytes if capped else None,
        swapped_bytes=int(memory.get("swap_bytes") or 0),
        applied_steps=end.ending.applied_steps,
        skipped_share=skipped / steps if steps else 0.0,
    )


def stored_run(end: RunEnd, verdict: Verdict) -> StoredRun:
    """A run's end as its row keeps it."""
    measured = {name: value for name, value in end.measurement.items() if name not in ("step_seconds", "hardware")}
    if end.memory.get("phase") == "eval":
        measured["evaluation_memory"] = {name: value for name, value in end.memory.items() if name != "phase"}
    return {
        "cause": verdict.cause,
        "confidence": verdict.confidence,
        "throughput": end.measurement.get("throughput"),
        "peak_memory_bytes": peak_of(end),
        "measurement": measured,
        "hardware": end.measurement.get("hardware", {}),
        "step_seconds": end.measurement.get("step_seconds", ()),
        "evidence": {**end.evidence, "text": verdict.text, "advice": verdict.advice},
        "seconds": end.seconds,
    }


def stored_trial(end: RunEnd, verdict: Verdict, limit_bytes: int | None) -> StoredTrial:
    """A trial's end as its row keeps it: its last run's measurement, why it ended so, and under which memory limit."""
    run = stored_run(end, verdict)
    evidence = {name: value for name, value in run["evidence"].items() if name not in ("log_head", "traceback")}
    evidence["memory_limit_bytes"] = limit_bytes
    return {
        "cause": verdict.cause,
        "confidence": verdict.confidence,
        "throughput": end.measurement.get("throughput"),
        "throughput_unit": end.measurement.get("throughput_unit"),
        "throughput_standard_error": end.measurement.get("throughput_standard_error"),
        "windows": 1 if end.measurement and verdict.outcome != "pruned" else 0,
        "peak_memory_bytes": peak_of(end),
        "metrics": dict(run["measurement"]) | {"mfu": _mfu(end)},
        "evidence": evidence,
        "seconds": end.seconds,
    }


def _mfu(end: RunEnd) -> float | None:
    measured = end.measurement
    name = (measured.get("hardware") or {}).get("name")
    precision = end.applied.get("config", {}).get("precision")
    if not measured or not name or not precision:
        return None
    return mfu(
        flops_per_unit=measured.get("flops_per_unit"),
        units_per_second=float(measured["throughput"]),
        peak=peak_flops_per_second(str(name), str(precision)),
    )
