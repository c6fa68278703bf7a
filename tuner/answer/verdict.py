"""What the confirmation says: the best configuration, its number, its ties, and who was thrown out. Pure.

Model: the window of trial c in round r reads ``mu_c + rho_r + e`` in natural logarithms. The round's effect takes out
what all runs of a round share (drift); the residual variance is pooled over all trials, with the search's prior. The
best is picked from several, so its comparisons share one error: each has a confidence of 1 - 5 % / (trials - 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from storage.records import RunRecord, TrialRecord
from tuner.answer.contenders import ATTEMPTS, FEWEST_ROUNDS, NO_FAULT, contenders, demoted
from tuner.search.front import is_feasible
from tuner.search.noise import (
    CONFIDENCE,
    PRIOR_FREEDOM,
    PRIOR_SPREAD,
    Comparison,
    Interval,
    comparison,
    interval_of,
    pooled_spread,
    study_spread,
)
from tuner.search.reasons import reason_of
from tuner.search.schedule import History
from tuner.search.windows import Window, by_trial, windows_of

CONFIRM = frozenset({"confirm"})


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """The study's answer. All keys are trial ids.

    Attributes:
        best: The fastest confirmed trial, never one slower than the baseline; None while nothing is confirmed.
        intervals: Throughput of every confirmed trial, from its confirmation runs alone, at the mean round's level: a
            round that lacks a trial moves no mean, and the ratio of two means is their paired comparison.
        against_best: The best against each other confirmed trial, paired by round.
        ties: Trials that may be as fast: confirmed and inside the noise, or contenders the time did not reach.
        demoted: Reason for trials that failed in a later run.
        speedup: The best against the baseline; None without a confirmed baseline.
        no_speedup: Why there is none; None when there is one, and before there is a best.
        fit: What the comparisons come from; None before there is one.
    """

    best: int | None = None
    intervals: Mapping[int, Interval] = field(default_factory=dict)
    against_best: Mapping[int, Comparison] = field(default_factory=dict)
    ties: tuple[int, ...] = ()
    demoted: Mapping[int, str] = field(default_factory=dict)
    speedup: Comparison | None = None
    no_speedup: str | None = None
    fit: Fit | None = None


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Least squares over trials and rounds, by trial id.

    Attributes:
        levels: Natural logarithm of units per second, in the mean round.
        variances: Of the difference of two levels.
        freedom: Degrees of freedom behind them.
    """

    levels: Mapping[int, float]
    variances: Mapping[tuple[int, int], float]
    freedom: float

    def against(self, a: int, b: int, confidence: float = CONFIDENCE) -> Comparison:
        """How much faster ``a`` is than ``b``, paired by round."""
        error = math.sqrt(self.variances[a, b])
        return comparison(self.levels[a] - self.levels[b], error, self.freedom, confidence)


def confirmation(history: History) -> Confirmation:
    """The verdict on the runs so far. Only trials with at least two completed confirmation runs count."""
    out = demoted(history)
    standing = {each.id for each in history.finished if is_feasible(each, history.limit_bytes)} - out.keys()
    windows = [each for each in windows_of(history.runs, CONFIRM) if each.trial_id in standing]
    confirmed = {trial_id: mine for trial_id, mine in by_trial(windows).items() if len(mine) >= FEWEST_ROUNDS}
    baseline = next((each for each in history.finished if each.number == 0), None)
    if not confirmed or _baseline_missing(baseline, confirmed, out, history):
        return Confirmation(demoted=out)
    searched = study_spread(history.runs, history.trials, history.device_kind)
    fit = _fit(history.runs, confirmed, history.device_kind, searched.relative if searched.windows else 0.0)
    best = max(fit.levels, key=lambda trial_id: (fit.levels[trial_id], -trial_id))
    return _answer(history, baseline, best, _intervals(confirmed, fit, history.device_kind), fit, out)


def _intervals(confirmed: Mapping[int, Sequence[Window]], fit: Fit, device_kind: str) -> dict[int, Interval]:
    """Each trial's interval, around its level in the mean round."""
    spread = pooled_spread((window for mine in confirmed.values() for window in mine), device_kind)
    found = {trial_id: interval_of(mine, spread) for trial_id, mine in confirmed.items()}
    return {each: known.scaled(math.exp(fit.levels[each]) / known.mean) for each, known in found.items()}


def _answer(
    history: History,
    baseline: TrialRecord | None,
    best: int,
    intervals: Mapping[int, Interval],
    fit: Fit,
    out: Mapping[int, str],
) -> Confirmation:
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(fit.levels) - 1)
    against = {other: fit.against(best, other, confidence) for other in fit.levels if other != best}
    inside = [other for other, seen in against.items() if seen.verdict == "tie"]
    unreached = [each.id for each in contenders(history) if each.id not in fit.levels and each.number != 0]
    return Confirmation(
        best=best,
        intervals=intervals,
        against_best=against,
        ties=(*inside, *unreached),
        demoted=out,
        speedup=_speedup(baseline, best, against),
        no_speedup=_no_speedup(baseline, best, against, out, history.limit_bytes),
        fit=fit,
    )


def _baseline_missing(
    baseline: TrialRecord | None, confirmed: Mapping[int, object], out: Mapping[int, str], history: History
) -> bool:
    """Whether a baseline that could be confirmed has not been yet: until then nothing may be called best."""
    if baseline is None or not is_feasible(baseline, history.limit_bytes):
        return False
    failed = sum(run.outcome in NO_FAULT for run in history.runs_of(baseline.id, "confirm"))
    return baseline.id not in confirmed and baseline.id not in out and failed < ATTEMPTS


def _speedup(baseline: TrialRecord | None, best: int, against: Mapping[int, Comparison]) -> Comparison | None:
    if baseline is None:
        return None
    if baseline.id == best:
        return Comparison(ratio=1.0, low=1.0, high=1.0, verdict="tie")
    return against.get(baseline.id)


def _no_speedup(
    baseline: TrialRecord | None,
    best: int,
    against: Mapping[int, Comparison],
    out: Mapping[int, str],
    limit_bytes: int | None,
) -> str | None:
    if baseline is None:
        return "the baseline was not run"
    if baseline.id == best or baseline.id in against:
        return None
    if baseline.id in out:
        return f"the baseline {out[baseline.id]}"
    if baseline.outcome != "completed":
        return f"the baseline has no throughput to compare with: {reason_of(baseline)}"
    if not is_feasible(baseline, limit_bytes):
        return "the baseline needs more memory than the limit"
    return "the baseline could not be confirmed"


def _fit(runs: Sequence[RunRecord], confirmed: Mapping[int, Sequence[Window]], device_kind: str, spread: float) -> Fit:
    """Ordinary least squares on trial and round indicators; numpy's pseudo-inverse copes with missing cells.

    Few rounds say little about their own residual, so the spread the search saw between runs stands in for the prior's
    where it is larger.
    """
    import numpy as np

    rounds = rounds_of(runs)
    cells = [(window, rounds[window.run_id]) for mine in confirmed.values() for window in mine]
    columns = {key: index for index, key in enumerate([*confirmed, *sorted({f"round {each}" for _, each in cells})])}
    design = np.zeros((len(cells), len(columns)))
    for row, (window, number) in enumerate(cells):
        design[row, columns[window.trial_id]] = design[row, columns[f"round {number}"]] = 1.0
    target = np.array([window.log_throughput for window, _ in cells])
    inverse = np.linalg.pinv(design.T @ design)
    levels = inverse @ design.T @ target
    freedom = len(cells) - int(np.linalg.matrix_rank(design))
    squares = float(((target - design @ levels) ** 2).sum())
    prior = max(spread, PRIOR_SPREAD.get(device_kind, PRIOR_SPREAD["cpu"]))
    variance = (PRIOR_FREEDOM * prior**2 + squares) / (PRIOR_FREEDOM + freedom)
    ids = list(confirmed)
    index = {each: columns[each] for each in ids}
    middle = float(np.delete(levels, [index[each] for each in ids]).mean())
    return Fit(
        levels={each: float(levels[index[each]]) + middle for each in ids},
        variances={
            (a, b): variance * max(0.0, float(inverse[i, i] + inverse[j, j] - 2 * inverse[i, j]))
            for a, i in index.items()
            for b, j in index.items()
        },
        freedom=PRIOR_FREEDOM + freedom,
    )


def rounds_of(runs: Sequence[RunRecord]) -> Mapping[str, int]:
    """The round of each confirmation run, by run id: a new one begins when a trial comes round again."""
    found: dict[str, int] = {}
    number, seen = 0, set[int | None]()
    for run in sorted((each for each in runs if each.purpose == "confirm"), key=lambda each: each.started_at):
        if run.trial_id in seen:
            number, seen = number + 1, set()
        seen.add(run.trial_id)
        found[run.id] = number
    return found
