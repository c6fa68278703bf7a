"""Host memory and shared memory that the data loader's workers take (mistake 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from objectives.knobs.loader import prefetched_bytes, shared_memory_reason
from tuner.doctor.check import Advice, Figure, Finding, Verdict
from tuner.doctor.subjects import Subject, measured
from tuner.doctor.telling import duration, size
from tuner.search.reasons import reason_of

if TYPE_CHECKING:
    from tuner.answer.summary import StudyView

GROWTH_BYTES, GROWTH_SHARE = 32 * 2**20, 0.10
"""Memory of the loader's workers that grows by both within one window grows for good: they only hand over batches."""


def shared_memory(view: StudyView) -> Finding | None:
    """What workers hand over batches through (cases E12, A22)."""
    failed = [each for each in view.ended if each.outcome == "shm"]
    there = None if view.facts is None else view.facts.shared_memory_bytes
    asked = [(each, reason) for each in measured(view) if (reason := _shm_reason(each, there))]
    with_workers = [each for each in measured(view) if each.config.loader_workers and each.numbers("batch_bytes")]
    if not failed and not with_workers:
        return None
    told = asked[0][1] if asked else reason_of(failed[0]) if failed else ""
    need = max((_shm_need(each) for each in with_workers), default=None)
    verdict: Verdict = "broken" if asked else "improve" if failed else "fine"
    advice = Advice(
        change="start the container with a larger `--shm-size` (or `--ipc=host`), or use fewer workers",
        expected="no worker dies of a bus error once its batches are ready",
        check="`df -h /dev/shm` in the container, and no outcome `shm` in the next study",
    )
    return Finding(
        name="shared_memory",
        verdict=verdict,
        statement=told or f"Ready batches take {size(need)} of {size(there)} shared memory.",
        figures=(
            Figure(name="shared memory", value=there, unit="bytes"),
            Figure(name="ready batches", value=need, unit="bytes"),
        ),
        trials=tuple(each.number for each in failed),
        advice=() if verdict == "fine" else (advice,),
        essential=False,
    )


def _shm_need(subject: Subject) -> int:
    config = subject.config
    largest = int(max(subject.numbers("batch_bytes"), default=0))
    return prefetched_bytes(
        workers=config.loader_workers, prefetch_factor=config.prefetch_factor, batch_bytes=largest
    )  # fmt: skip


def _shm_reason(subject: Subject, there: int | None) -> str | None:
    config = subject.config
    return shared_memory_reason(
        workers=config.loader_workers,
        prefetch_factor=config.prefetch_factor,
        batch_bytes=int(max(subject.numbers("batch_bytes"), default=0)),
        shared_memory_bytes=there,
    )


def growth(view: StudyView) -> Finding | None:
    """Host memory that grows while loader workers touch what they share with the parent (case E03)."""
    runs = ((run, each) for each in measured(view) for run in each.runs)
    known = [(*seen, run, each) for run, each in runs if (seen := _grown(run.measurement)) is not None]
    if not known:
        return None
    added, before, run, subject = max(known, key=lambda each: each[0])
    bad = added > GROWTH_BYTES and added > GROWTH_SHARE * before
    seconds = float(run.measurement.get("window_seconds") or 0.0)
    advice = Advice(
        change="keep the data in arrays or memory-mapped files, not in Python lists and dicts of the data set",
        expected="reference counts stop copying shared pages; host memory stays flat over the epoch",
        check="host memory before and after the window here, and `tuner soak`",
    )
    return Finding(
        name="copy_on_write",
        verdict="improve" if bad else "fine",
        statement=(
            f"The loader workers' share of host memory {'grew' if added > 0 else 'fell'} by {size(abs(added))} "
            f"in {duration(seconds)} ({size(before)} before)."
        ),
        figures=(
            Figure(name="workers' memory before the window", value=before, unit="bytes", of=subject.word),
            Figure(name="growth", value=added, unit="bytes", of=subject.word),
        ),
        trials=(subject.trial.number,),
        runs=(run.id,),
        advice=(advice,) if bad else (),
        essential=False,
    )


def _grown(said: Mapping[str, Any]) -> tuple[int, int] | None:
    before, after = said.get("workers_bytes_before"), said.get("workers_bytes_after")
    return None if not isinstance(before, int) or not isinstance(after, int) else (after - before, before)


def host_memory(view: StudyView) -> Finding | None:
    """Trials that the host had no memory for (cases E10, A23): ready batches are workers x prefetch x batch bytes."""
    failed = [each for each in view.ended if each.outcome == "host_oom"]
    if not failed:
        return None
    most = max(int(each.config.get("loader_workers", 0)) for each in failed)
    advice = Advice(
        change="fewer loader_workers or a smaller prefetch_factor; a data set read from disk, not held in memory",
        expected="the host keeps its memory; the device's batch may stay as it is",
        check="no outcome `host_oom` in the next study",
    )
    return Finding(
        name="host_memory",
        verdict="improve",
        statement=f"{len(failed)} trials ran out of host memory, with up to {most} workers: {reason_of(failed[0])}.",
        figures=(Figure(name="trials", value=len(failed)), Figure(name="most loader workers", value=most)),
        trials=tuple(each.number for each in failed),
        advice=(advice,),
        essential=False,
    )
