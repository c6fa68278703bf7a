"""``tuner soak``: the winner for minutes, its memory read all along; remedies where it grows or sits near the limit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from objectives.config import TrainingConfig
from objectives.knobs import knob, legal_values
from tuner.answer.soak import Attempt, attempts_for, curves_of, document, found, judged, needs_remedy
from tuner.work.longer_runs import Bench, Done, Order, keep, perform, require_done, say

MINUTES = 10.0
REMEDY_SHARE = 1 / 3
"""A remedy runs so much of the soak's time."""
EMPTIES = 20
"""Times the cache is emptied in a remedy's run."""


def soak(bench: Bench, *, minutes: float = MINUTES, remedies: bool = True) -> dict[str, Any]:
    """Soaks the study's winner.

    Args:
        bench: The study.
        minutes: Of the plain run; each remedy adds a third of it.
        remedies: Whether remedies are tried where they are needed.

    Raises:
        TightfitError: It cannot be run, or failed; the stored run says more.
    """
    bench.require_workload("soak")
    winner, seconds = bench.winner, 60 * minutes
    limit = bench.view.study.memory_limit_bytes
    say(bench, f"soaking trial {winner.number} for {minutes:g} minutes")
    done = perform(bench, Order(purpose="soak", trial=winner, answer={"seconds": seconds}, seconds=seconds))
    plain = done.end.measurement
    tried: list[dict[str, Any]] = []
    try:
        if remedies and done.end.verdict.outcome == "completed":
            tried = _try_remedies(bench, plain, seconds)
    finally:
        told = found(plain, tried, limit) if plain.get("series") else {}
        peak = plain.get("peak_memory_bytes") if bench.session.lane.device.kind == "cuda" else None
        keep(bench, done, told, peak_memory_bytes=peak)
    require_done(done, "the soak")
    return document(told, study=bench.view.study.name, trial=winner.number, run=done.run)


def _try_remedies(bench: Bench, plain: Mapping[str, Any], seconds: float) -> list[dict[str, Any]]:
    winner, session = bench.winner, bench.session
    if not needs_remedy(curves_of(plain), plain.get("peak_memory_bytes"), bench.view.study.memory_limit_bytes):
        return []
    config = TrainingConfig.from_mapping(winner.config)
    updates = int(plain.get("updates") or 0)
    every = max(1, int(updates * REMEDY_SHARE / EMPTIES))
    tried = []
    for attempt in attempts_for(config, session.lane.device.kind, groups_lengths=_groups_lengths(bench), every=every):
        if session.stop.is_set():
            break
        done = _attempt(bench, attempt, seconds * REMEDY_SHARE)
        if done.end.measurement.get("series"):
            tried.append(judged(attempt, done.end.measurement, plain))
    return tried


def _attempt(bench: Bench, attempt: Attempt, seconds: float) -> Done:
    """One remedy's run: it belongs to the study, not to the trial, and nothing is concluded from its outcome."""
    say(bench, f"trying a remedy: {attempt.name}")
    order = Order(
        purpose="soak",
        trial=bench.winner,
        answer={"seconds": seconds, **attempt.answer},
        seconds=seconds,
        kept_for_trial=False,
        knobs=attempt.knobs,
        environment={**bench.session.spec.environment, **attempt.environment} if attempt.environment else None,
    )
    begun = time.monotonic()
    done = perform(bench, order)
    keep(bench, done, {})
    if done.end.verdict.outcome != "completed":
        say(bench, f"{attempt.name} did not run ({done.end.verdict.text}), {time.monotonic() - begun:.0f} s")
    return done


def _groups_lengths(bench: Bench) -> bool:
    facts = bench.view.facts
    return facts is not None and "length-grouped" in legal_values(knob("batching"), facts, ("length-grouped",))[0]
