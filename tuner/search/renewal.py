"""A confirmation that was done again: what the runs before it said no longer counts. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from storage.records import RunRecord

FACT = "confirmed_since"
"""Key of a study's facts: when its newest finished renewal began (ISO, UTC); absent before the first."""


def since_of(facts: Mapping[str, Any]) -> datetime | None:
    """When the newest renewal began; None before the first."""
    said = facts.get(FACT)
    return datetime.fromisoformat(said) if isinstance(said, str) else None


def current_runs(runs: Sequence[RunRecord], since: datetime | None) -> Sequence[RunRecord]:
    """The runs without confirmation runs of before that moment; all of them for None."""
    if since is None:
        return runs
    return tuple(run for run in runs if run.purpose != "confirm" or run.started_at >= since)
