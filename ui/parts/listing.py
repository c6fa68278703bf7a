"""The list of studies: what stands in a row, which rows are shown, in which order. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from storage.overview import StudyOverview
from storage.studies import ENDED
from tuner.cli import words

ORDERS: Mapping[str, Callable[[StudyOverview], Any]] = {
    "newest": lambda each: -each.id,
    "last changed": lambda each: -each.updated_at.timestamp(),
    "name": lambda each: each.name.casefold(),
    "speed-up": lambda each: -(each.speedup or 0.0),
    "best throughput": lambda each: -(each.best_throughput or 0.0),
}
"""Ways to sort, by the word a person chooses."""
STATUS_COLOURS = {
    "queued": "gray", "running": "blue", "paused": "orange", "finished": "green", "failed": "red", "cancelled": "gray",
}  # fmt: skip
STATUS_ICONS = {
    "queued": "schedule", "running": "play_arrow", "paused": "pause", "finished": "check", "failed": "error",
    "cancelled": "block",
}  # fmt: skip


def matching(
    found: Sequence[StudyOverview], *, text: str = "", statuses: Sequence[str] = (), device: str | None = None
) -> list[StudyOverview]:
    """The studies whose name or device has every word of the text, with one of the statuses (none: any)."""
    wanted = text.casefold().split()
    return [
        each
        for each in found
        if (not statuses or each.status in statuses)
        and (device is None or each.device == device)
        and all(word in f"{each.name} {each.device or ''}".casefold() for word in wanted)
    ]


def in_order(found: Sequence[StudyOverview], order: str) -> list[StudyOverview]:
    """Sorted as a person chose; an unknown word is the first order."""
    return sorted(found, key=ORDERS.get(order, ORDERS["newest"]))


def devices(found: Sequence[StudyOverview]) -> list[str]:
    """The devices' names, sorted."""
    return sorted({each.device for each in found if each.device})


def done(each: StudyOverview) -> int:
    """Trials that have ended."""
    return sum(each.counts.values())


def trials_text(each: StudyOverview) -> str:
    """``24 of 40 trials``, of a study that has ended ``24 trials``; with what runs now."""
    limit = f" of {each.trial_limit:,}" if each.trial_limit and each.status not in ENDED else ""
    running = (
        f", {each.open_trials} open" if each.open_trials else " trial" if done(each) == 1 and not limit else " trials"
    )
    return f"{done(each):,}{limit}{running}"


def best_text(each: StudyOverview) -> str:
    """The best throughput; empty without one."""
    return words.rate(each.best_throughput, each.throughput_unit) if each.best_throughput else ""


def speedup_text(each: StudyOverview) -> str:
    """The confirmed speed-up over the baseline."""
    return "" if each.speedup is None else f"{words.times(each.speedup)} speed-up"


def ago(seconds: float) -> str:
    """How long ago, roughly: ``just now``, ``5 min ago``, ``3 h ago``, ``2 days ago``."""
    if seconds < 60:
        return "just now"
    for size, name in ((86400, "day"), (3600, "h"), (60, "min")):
        if seconds >= size:
            many = int(seconds // size)
            return f"{many} {name}{'s' if name == 'day' and many > 1 else ''} ago"
    return "just now"
