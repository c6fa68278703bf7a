"""One run with its measurement, its hardware and its evidence. Nothing of it is ever understood as markup."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import streamlit as st

from storage.records import RunRecord
from tuner.cli import words
from ui.plain import markdown

SHARES = ("_share", "mfu", "half_width_95", "relative_standard_error")
LOGS = (("traceback", "Traceback"), ("log_head", "Log, its start"), ("log_tail", "Log, its end"))


def draw_run(run: RunRecord) -> None:
    """A folded part: the run in a line, everything known of it inside."""
    ended = (run.outcome or "running").replace("_", " ")
    icon = {"completed": ":material/check:", "running": ":material/play_arrow:"}.get(ended, ":material/error:")
    cause = f", {run.cause}" if run.cause else ""
    label = f"{run.purpose} {run.attempt}: {ended}{cause}, {words.duration(run.seconds)}"
    with st.expander(markdown(label), icon=icon, key=f"run-{run.id}"):
        if run.evidence.get("text"):
            st.text(str(run.evidence["text"])[:2000])
        if run.evidence.get("advice"):
            st.text(f"What to do: {run.evidence['advice']}")
        for name, title in LOGS:
            if text := run.evidence.get(name):
                st.caption(title)
                st.code(str(text), language=None, height=min(320, 60 + 20 * str(text).count("\n")))
        left, right = st.columns(2)
        with left:
            _facts("Measurement", run.measurement)
        with right:
            _facts("Hardware and software", run.hardware)
            _facts("Evidence", {name: item for name, item in run.evidence.items() if name not in dict(LOGS)})


def _facts(title: str, facts: Mapping[str, Any]) -> None:
    rows = [{"": name, "value": value} for name, value in flat(facts)]
    if rows:
        st.caption(title)
        st.dataframe(rows, hide_index=True, height="content")


def flat(facts: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Names and values for people, parts of parts included; what is null is left out."""
    for name, item in facts.items():
        full = f"{before}{name}".replace("_", " ")
        if isinstance(item, Mapping):
            yield from flat(item, f"{full}: ")
        elif item is not None and item not in ("", []):
            yield readable_name(full), readable(str(name), item)


def readable_name(name: str) -> str:
    """Without the unit, which stands with the value."""
    for unit in (" bytes", " seconds"):
        name = name.removesuffix(unit)
    return name


def readable(name: str, item: Any) -> str:
    """A value with its unit, as the name's suffix says it."""
    if isinstance(item, bool) or not isinstance(item, int | float):
        return ", ".join(map(str, item)) if isinstance(item, list | tuple) else words.value(item)
    if name.endswith("_bytes"):
        return words.size(item)
    if name.endswith("_seconds") or name == "seconds":
        return f"{1000 * item:,.1f} ms" if item < 1 else f"{item:,.2f} s"
    if name.endswith(SHARES):
        return f"{100 * item:.2f} %"
    return f"{item:,}" if isinstance(item, int) else f"{item:,.4g}"
