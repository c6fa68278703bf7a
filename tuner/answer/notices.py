"""What a person should know beside the numbers, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tuner.answer.contenders import given_up

if TYPE_CHECKING:
    from tuner.answer.summary import StudyView

MOST_REASONS = 4


def notices(view: StudyView) -> list[str]:
    """The notices of a study, most important first."""
    answer, numbers = view.answer, {each.id: each.number for each in view.ended}
    said = []
    if answer.best is None and any(each.outcome == "completed" for each in view.ended):
        said.append("no configuration has been confirmed: the front's numbers are from short search windows")
    if answer.no_speedup is not None:
        said.append(f"no speed-up is stated: {answer.no_speedup}")
    for trial_id, reason in given_up(view.history).items():
        said.append(f"trial {numbers[trial_id]} could not be confirmed: {reason}")
    if any(each.disturbed for each in view.history.intervals.values()):
        said.append("some trials were only measured while the machine was disturbed (the baseline was far off then)")
    left = left_out(view.study.facts.get("data") or {})
    return said if left is None else [*said, left]


def left_out(data: Mapping[str, Any]) -> str | None:
    """What preparing the data skipped (broken lines, broken pictures), with the first places; None for nothing.

    Args:
        data: What the objective's preparation returned; its ``skipped`` has ``counts`` by reason and ``examples``.
    """
    skipped: Mapping[str, Any] = data.get("skipped") or {}
    counts = sorted((skipped.get("counts") or {}).items(), key=lambda each: -each[1])
    if not counts:
        return None
    reasons = "; ".join(f"{count} x {reason}" for reason, count in counts[:MOST_REASONS])
    more = f"; and {len(counts) - MOST_REASONS} more reasons" if len(counts) > MOST_REASONS else ""
    rows = f" ({data['rows']} rows were kept)" if isinstance(data.get("rows"), int) else ""
    examples = "; ".join(map(str, skipped.get("examples") or ()))
    where = f". The first: {examples}" if examples else ""
    return f"{sum(count for _, count in counts)} pieces of the data were left out{rows}: {reasons}{more}{where}"
