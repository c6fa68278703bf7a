"""``tuner estimate`` for people: what fits, what does not, and what a study of it would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from objectives.config import TrainingConfig
from tuner.cli import words
from tuner.cli.printing import console, line, table, title

MOST_ROWS = 40
"""Rows shown; ``--json`` has all."""


def print_estimate(document: Mapping[str, Any]) -> None:
    """The counts, the table (fastest to read: smallest first) and the plan."""
    out = console()
    estimates, counts = document["estimates"], document["counts"]
    limit = words.size(document["memory_limit_bytes"])
    line(
        out, f"{document['study']}: {document['configurations']} configurations on {document['device']}, limit {limit}"
    )
    line(out, ", ".join(f"{count} {name}" for name, count in counts.items() if count))
    title(out, "Predicted peak memory, smallest first")
    known = sorted(estimates, key=lambda each: each["predicted_peak_memory_bytes"] or 2**63)
    _rows(out, known)
    if len(known) > MOST_ROWS:
        line(out, f"... and {len(known) - MOST_ROWS} between them; --json has all")
    notes = sorted({each["note"] for each in estimates if each["note"]})
    for note in notes[:5]:
        line(out, f"note: {note}")
    plan = document["plan"]
    title(out, "Plan")
    line(out, f"  at most {plan['trials']} trials, about {words.duration(plan['seconds'])} with the confirmation")
    line(out, "  tuner run SPEC               starts it; these predictions stand beside its measurements")


def _rows(out: Any, known: Sequence[Mapping[str, Any]]) -> None:
    half = MOST_ROWS // 2
    shown = known if len(known) <= MOST_ROWS else [*known[:half], *known[-half:]]
    defaults = TrainingConfig().to_mapping()
    rows = [
        (
            words.size(each["predicted_peak_memory_bytes"]),
            words.interval(each["predicted_interval"], words.size),
            str(each["verdict"]),
            words.knobs(each["config"], defaults) or "the trainer's defaults",
        )
        for each in shown
    ]
    table(out, ("predicted", "95 % bar", "verdict", "configuration"), rows, right=("predicted",))
