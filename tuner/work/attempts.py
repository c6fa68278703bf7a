"""A trial from its first attempt to its one outcome, and its further windows later. Every run's end is stored."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any

from objectives.measure.flops import measurement_fault, mfu, peak_flops_per_second
from objectives.trial.outcome import Verdict, judge_measurement, should_retry
from storage import runs, trials
from tuner.work.runner import Deadlines, RunEnd
from tuner.work.session import Session, peak_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from objectives.trial.protocol import Purpose, WindowPlan
    from storage.records import RunEnd as StoredRun
    from storage.records import RunRecord, TrialRecord
    from storage.records import TrialEnd as StoredTrial
    from tuner.work.lane import Lane


def search(session: Session, lane: Lane, trial: TrialRecord, window: WindowPlan, deadlines: Deadlines) -> None:
    """Runs a trial's attempts until it has its outcome; one that a person stops has none, and is tried again later.

    A retry with fewer loader workers is another configuration, and so another trial: the schedule proposes it. Where
    there are none to spare, the same configuration gets its one more attempt.
    """
    attempt = 1 + len(runs.list_of(session.database, trial_id=trial.id, purpose="search"))
    raised: int | None = None
    while True:
        run_id, end = session.run_trial(
            lane, trial, "search", window, deadlines=deadlines, attempt=attempt, memory_limit_bytes=raised
        )
        verdict = judged(session, end, capped=raised is not None)
        retry = should_retry(verdict, attempt)
        fewer = retry is not None and retry.how == "fewer_workers" and trial.config.get("loader_workers") != 0
        if retry is not None and not fewer and not session.stop.is_set():
            runs.finish(session.database, run_id, outcome=verdict.outcome, **stored_run(end, verdict))
            if retry.how == "raised_cap" and session.study.memory_limit_bytes is not None:
                raised = int(session.study.memory_limit_bytes * retry.cap_factor)
            attempt += 1
            continue
        _end(session, trial, run_id, end, verdict)
        return


def _end(session: Session, trial: TrialRecord, run_id: str, end: RunEnd, verdict: Verdict) -> None:
    if verdict.outcome == "cancelled" and session.stop.is_set():
        runs.finish(session.database, run_id, outcome="cancelled", **stored_run(end, verdict))
        return
    runs.record_end(
        session.database,
        id=run_id,
        outcome=verdict.outcome,
        run=stored_run(end, verdict),
        trial_id=trial.id,
        trial=stored_trial(end, verdict, session.study.memory_limit_bytes),
    )


def further_window(
    session: Session, lane: Lane, trial: TrialRecord, purpose: Purpose, window: WindowPlan, deadlines: Deadlines
) -> tuple[RunRecord, Verdict]:
    """One more run of a finished trial: a repeat or a part of the confirmation. A repeat joins the trial's mean."""
    attempt = 1 + len(runs.list_of(session.database, trial_id=trial.id, purpose=purpose))
    run_id, end = session.run_trial(lane, trial, purpose, window, deadlines=deadlines, attempt=attempt)
    verdict = judged(session, end, capped=False)
    stored = runs.finish(session.database, run_id, outcome=verdict.outcome, **stored_run(end, verdict))
    if purpose == "repeat" and verdict.outcome == "completed":
        _join(session, trial)
    return stored, verdict


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
        "windows": 1 if end.measurement else 0,
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
