"""Why the winner won: one change after the other, what each brought, and how that is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from tuner.cli import words

SOURCES = {
    "measured": "measured between trials {0} and {1}",
    "together": "only tried together, trials {0} and {1}",
    "modelled": "measured together, split by the model",
}


def draw(answer: Mapping[str, Any]) -> None:
    """The steps as a table; a sentence where there is nothing to explain."""
    steps = answer.get("explanation")
    if not steps:
        st.text(_no_steps(answer))
        return
    st.dataframe(
        [row(each) for each in steps], hide_index=True, height="content",
        column_config={
            "change": st.column_config.TextColumn(width="large"),
            "gain": st.column_config.TextColumn("speed", width=70),
        },
        alt="The changes from the baseline to the winner with what each brought.",
    )  # fmt: skip


def row(step: Mapping[str, Any]) -> dict[str, str]:
    """One change in words."""
    changes = (f"{each['knob']}: {words.value(each['from'])} → {words.value(each['to'])}" for each in step["knobs"])
    low, high = step["gain_interval"]
    return {
        "change": ", ".join(changes),
        "gain": words.times(step["gain"]),
        "95 % interval": f"{low:.2f} to {high:.2f}",
        "memory": added(step["memory_bytes"]),
        "known from": SOURCES.get(step["source"], step["source"]).format(*step["trials"]),
    }


def added(memory_bytes: int | None) -> str:
    """What a change added to the peak."""
    if memory_bytes is None:
        return words.NOTHING
    if abs(memory_bytes) < 2**20:
        return "same"
    return f"{'+' if memory_bytes > 0 else '-'}{words.size(abs(memory_bytes))}"


def _no_steps(answer: Mapping[str, Any]) -> str:
    best, baseline = answer.get("best"), answer.get("baseline")
    if best is None:
        return "No configuration has been confirmed yet: the explanation comes with the winner."
    if baseline is not None and best["number"] == baseline["number"]:
        return "The baseline itself is the fastest that was confirmed."
    return f"No speed-up is stated: {answer.get('speedup_reason') or 'the baseline has no number'}."
