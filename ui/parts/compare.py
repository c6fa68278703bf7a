"""Selected trials side by side, knob by knob: what differs first, what is alike behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import streamlit as st

from storage.records import StudyRecord, TrialRecord
from tuner.cli import words
from ui import data, links
from ui.reported import Reported

MOST = 6
METRICS: tuple[tuple[str, Callable[[TrialRecord], str]], ...] = (
    (
        "outcome",
        lambda each: (each.outcome or "running").replace("_", " ") + (f" ({each.cause})" if each.cause else ""),
    ),
    ("peak memory", lambda each: words.size(each.peak_memory_bytes)),
    ("predicted peak", lambda each: words.size(each.predicted_peak_memory_bytes)),
    ("step, median", lambda each: _milliseconds(each.metrics.get("median_step_seconds"))),
    ("data stall", lambda each: _percent(each.metrics.get("data_stall_share"))),
    ("MFU", lambda each: _percent(each.metrics.get("mfu"))),
    ("device time", lambda each: words.duration(each.seconds)),
)
"""What is compared beside the knobs."""


def draw(study: StudyRecord, answer: Mapping[str, Any], reported: Reported) -> None:
    """The selection as a table, a column a trial; baseline beside winner while nothing is selected."""
    picked, points = links.picked_trials(), data.points(study)
    speeds = dict(zip(points.numbers, np.nan_to_num(reported.column(points)).tolist(), strict=True))
    fastest = sorted(picked, key=lambda number: -speeds.get(number, 0.0))
    found = data.trials_by_number(study, (fastest or _answers(answer))[:MOST])
    if not found:
        st.caption("Select trials on the front (click, or drag a box) or in the table to see them side by side.")
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.subheader(_title(picked), anchor=False, width="content")
        if picked:
            st.button("Clear selection", key="clear", on_click=clear, icon=":material/close:", type="tertiary")
        else:
            st.caption("Select trials on the front (click, or drag a box) or in the table to compare those.")
    _links(study, found)
    differing, alike = table(found, reported)
    st.dataframe(differing, hide_index=True, height="content", alt="Trials side by side, knob by knob.")
    if alike:
        with st.expander(f"The same in all of them ({len(alike)})", key="alike"):
            st.dataframe(alike, hide_index=True, height="content")


def _title(picked: Sequence[int]) -> str:
    if not picked:
        return "Baseline beside the best"
    return "Side by side" + (f": the fastest {MOST} of {len(picked)} selected" if len(picked) > MOST else "")


def _answers(answer: Mapping[str, Any]) -> tuple[int, ...]:
    """Numbers of baseline and winner (before there is one: the fastest); none where there are no two to compare."""
    front = answer.get("front") or [None]
    told = (answer.get("baseline"), answer.get("best") or front[0])
    numbers = tuple(dict.fromkeys(each["number"] for each in told if each))
    return numbers if len(numbers) > 1 else ()


def _links(study: StudyRecord, found: Sequence[TrialRecord]) -> None:
    with st.container(horizontal=True):
        for each in found:
            st.page_link(
                links.TRIAL_PAGE, label=f"Trial {each.number}", icon=":material/open_in_new:",
                query_params={"study": study.name, "trial": str(each.number)},
            )  # fmt: skip


def table(found: Sequence[TrialRecord], reported: Reported) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Rows of metrics and knobs that differ, and rows of knobs that are alike.

    Args:
        found: The trials, a column each.
        reported: Their throughputs.
    """
    names = [f"trial {each.number}" for each in found]
    speeds = [words.rate(reported.of(each), each.throughput_unit) for each in found]
    rows = [{" ": "throughput", **dict(zip(names, speeds, strict=True))}]
    rows += [{" ": name, **dict(zip(names, map(show, found), strict=True))} for name, show in METRICS]
    rows = [each for each in rows if any(each[name] not in ("", words.NOTHING) for name in names)]
    alike: list[dict[str, str]] = []
    for knob in dict.fromkeys(name for each in found for name in each.config):
        values = [words.value(each.config.get(knob)) for each in found]
        if len(set(values)) > 1 or len(found) == 1:
            rows.append({" ": knob, **dict(zip(names, values, strict=True))})
        else:
            alike.append({"knob": knob, "value": values[0]})
    return rows, alike


def clear() -> None:
    """Empties the selection, in the address, the table and the chart."""
    links.pick_trials(())
    st.session_state["cleared"] = st.session_state.get("cleared", 0) + 1
    st.session_state.pop("front drawn", None)


def _milliseconds(seconds: Any) -> str:
    return f"{1000 * seconds:,.1f} ms" if isinstance(seconds, int | float) else words.NOTHING


def _percent(share: Any) -> str:
    return f"{100 * share:.1f} %" if isinstance(share, int | float) else words.NOTHING


def config_rows(config: Mapping[str, Any], baseline: Mapping[str, Any]) -> list[dict[str, str]]:
    """A configuration, a row a knob, with the baseline's value where it is another."""
    return [
        {
            "knob": name,
            "value": words.value(value),
            "baseline": words.value(baseline.get(name)) if baseline.get(name, value) != value else "",
        }
        for name, value in config.items()
    ]
