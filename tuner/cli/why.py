"""Why the winner won, as a small table: one change a line, what it brought, and how that is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from tuner.cli import words
from tuner.cli.printing import line, table, title

Step = Mapping[str, Any]


def print_why(out: Console, steps: Sequence[Step]) -> None:
    """The steps from the baseline to the winner; nothing where there is none to tell."""
    if not steps:
        return
    title(out, "Why it won: one change after the other")
    rows = [
        (words.times(step["gain"]), _bounds(step), _memory(step["memory_bytes"]), _known(step), _change(step))
        for step in steps
    ]
    table(out, ("speed", "95 % interval", "memory", "known from", "change"), rows, right=("speed", "memory"))
    if any(step["source"] == "together" for step in steps):
        line(out, "Changes in one line were only tried together: no trial tells them apart.")
    if any(step["source"] == "modelled" for step in steps):
        line(out, "model: measured together; the cost model splits what they brought.")


def _change(step: Step) -> str:
    return ", ".join(
        f"{each['knob']} {words.value(each['from'])} -> {words.value(each['to'])}" for each in step["knobs"]
    )


def _bounds(step: Step) -> str:
    low, high = step["gain_interval"]
    return f"{low:.2f} to {high:.2f}"


def _memory(added: int | None) -> str:
    if added is None:
        return words.NOTHING
    return "same" if abs(added) < 2**20 else f"{'+' if added > 0 else '-'}{words.size(abs(added))}"


def _known(step: Step) -> str:
    if step["source"] == "modelled":
        return "model"
    return "trials {} and {}".format(*step["trials"])
