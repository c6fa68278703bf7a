"""The confirmation's plan: longer runs of the winner, its rivals and the baseline, interleaved. Pure.

Search numbers choose who is confirmed and nothing else: the best of many noisy readings reads too high (the best of ten
equal configurations at 1 % noise by 1.5 %), so the number reported comes from new runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from objectives.config import TrainingConfig
from storage.records import RunRecord, TrialRecord
from tuner.answer.contenders import ATTEMPTS, FEWEST_ROUNDS, NO_FAULT, contenders
from tuner.search.schedule import History
from tuner.spec.model import StudySpec

WINDOW_FACTOR = 2.0
"""A confirmation run measures at least so many times the search window."""

MOST_ROUNDS = 5
ROUNDS_WITHOUT_LIMIT = 3

CONFIRMED_WITHOUT_LIMIT = 4
"""Trials confirmed when no time limit says how far it reaches, the baseline not counted."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Who is confirmed, how often and how long.

    Attributes:
        rounds: Trial ids by round; every second round runs backwards, so that drift cancels.
        window_seconds: The measuring window of each run.
        ties: Contenders the time does not reach: reported as ties, unconfirmed.
    """

    rounds: tuple[tuple[int, ...], ...]
    window_seconds: float
    ties: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ConfirmRun:
    """The confirmation's next run.

    Attributes:
        round: 1 for the first.
        attempt: Number of this run among the trial's confirmation runs.
    """

    trial_id: int
    config: TrainingConfig
    round: int
    rounds: int
    window_seconds: float
    attempt: int = 1


def plan(history: History, spec: StudySpec, seconds_left: float | None) -> Plan:
    """Plans (or plans again, after each run) the confirmation.

    At least the winner and the baseline run, twice each, however little time is left.

    Args:
        history: The study as it stands.
        spec: The spec.
        seconds_left: Wall time left; None without a limit.
    """
    window = WINDOW_FACTOR * spec.limits.window_seconds
    ranked = contenders(history)
    if not ranked:
        return Plan(rounds=(), window_seconds=window)
    costs = {each.id: _cost(history.runs, each.id, window, spec.limits.window_seconds) for each in ranked}
    budget = None if seconds_left is None else seconds_left + _spent(history.runs)
    chosen = _chosen(ranked, costs, budget, started=_started(history.runs))
    count = _rounds(sum(costs[each] for each in chosen), budget)
    rounds = tuple(tuple(chosen if number % 2 == 0 else reversed(chosen)) for number in range(count))
    left_out = tuple(each.id for each in ranked if each.id not in chosen)
    return Plan(rounds=rounds, window_seconds=window, ties=left_out)


def next_confirmation(history: History, spec: StudySpec, seconds_left: float | None) -> ConfirmRun | None:
    """The next run of the confirmation; None when it is complete (or there is nothing to confirm)."""
    made = plan(history, spec, seconds_left)
    by_id = {each.id: each for each in history.trials}
    done = {trial_id: _done(history.runs, trial_id) for trial_id in (made.rounds[0] if made.rounds else ())}
    for number, order in enumerate(made.rounds):
        for trial_id in order:
            completed, failed = done[trial_id]
            if completed > number or failed >= ATTEMPTS or trial_id in history.busy:
                continue
            return ConfirmRun(
                trial_id=trial_id,
                config=TrainingConfig.from_mapping(by_id[trial_id].config),
                round=number + 1,
                rounds=len(made.rounds),
                window_seconds=made.window_seconds,
                attempt=len(_confirm_runs(history.runs, trial_id)) + 1,
            )
    return None


def _chosen(
    ranked: Sequence[TrialRecord], costs: dict[int, float], budget: float | None, started: frozenset[int]
) -> list[int]:
    """The winner and the baseline always; then, fastest first, those begun already and those the time reaches."""
    must = [each.id for each in ranked if each.number == 0 or each.id == ranked[0].id or each.id in started]
    total = sum(costs[each] for each in must)
    for trial in ranked:
        rivals = sum(1 for each in must if each != ranked[0].id)
        fits = (
            rivals < CONFIRMED_WITHOUT_LIMIT if budget is None else FEWEST_ROUNDS * (total + costs[trial.id]) <= budget
        )
        if trial.id in must:
            continue
        if not fits:
            break
        must.append(trial.id)
        total += costs[trial.id]
    return [each.id for each in ranked if each.id in must]


def _rounds(round_seconds: float, budget: float | None) -> int:
    if budget is None:
        return ROUNDS_WITHOUT_LIMIT
    return max(FEWEST_ROUNDS, min(MOST_ROUNDS, int(budget / max(round_seconds, 1e-9))))


def _cost(runs: Sequence[RunRecord], trial_id: int, window: float, search_window: float) -> float:
    """Expected seconds of one confirmation run: what the trial's runs took beside their windows, plus the window."""
    mine = [run for run in runs if run.trial_id == trial_id and run.outcome == "completed" and run.seconds > 0]
    beside = [max(0.0, run.seconds - _window_seconds(run, search_window)) for run in mine]
    return (fmean(beside) if beside else search_window) + window


def _window_seconds(run: RunRecord, search_window: float) -> float:
    said = run.measurement.get("window_seconds")
    return float(said) if isinstance(said, (int, float)) else search_window


def _spent(runs: Sequence[RunRecord]) -> float:
    return sum(run.seconds for run in runs if run.purpose == "confirm")


def _started(runs: Sequence[RunRecord]) -> frozenset[int]:
    return frozenset(run.trial_id for run in runs if run.purpose == "confirm" and run.trial_id is not None)


def _confirm_runs(runs: Sequence[RunRecord], trial_id: int) -> list[RunRecord]:
    return [run for run in runs if run.trial_id == trial_id and run.purpose == "confirm"]


def _done(runs: Sequence[RunRecord], trial_id: int) -> tuple[int, int]:
    """Completed confirmation runs, and those that ended without saying anything about the configuration."""
    mine = _confirm_runs(runs, trial_id)
    return sum(run.outcome == "completed" for run in mine), sum(run.outcome in NO_FAULT for run in mine)
