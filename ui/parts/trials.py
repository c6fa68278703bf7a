"""The trials table: filters by outcome and knob, pages, and a selection that goes with the front's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from storage.models import OUTCOMES
from storage.records import StudyRecord, TrialRecord
from tuner.cli import words
from ui import data, links
from ui.charts import look
from ui.points import Points
from ui.reported import Reported

PAGE = 50
ORDERS = {
    "newest": ("number", True), "number": ("number", False), "fastest": ("throughput", True),
    "smallest": ("peak_memory_bytes", False), "longest": ("seconds", True),
}  # fmt: skip
MOST_KNOBS = 12


def draw(study: StudyRecord, points: Points, reported: Reported) -> None:
    """Filters, the page, and the selection's count."""
    picked = links.picked_trials()
    outcomes, knobs, order, only = _filters(points, picked)
    if only and picked:
        found, total = data.trials_by_number(study, picked), len(picked)
    else:
        column, descending = ORDERS[order]
        at = max(int(st.session_state.get("rows") or 1), 1)
        page = data.trial_page(
            study, outcomes=outcomes or None, knobs=knobs, order_by=column, descending=descending,  # type: ignore[arg-type]
            limit=PAGE, offset=(at - 1) * PAGE,
        )  # fmt: skip
        found, total = page.trials, page.total
    if not found:
        st.info(
            "No trial has this outcome and these values."
            if total == 0 and (outcomes or knobs)
            else "No trial on this page."
        )
        return
    _table(found, points, picked, reported)
    _pages(total, len(found))


def _filters(points: Points, picked: Sequence[int]) -> tuple[list[str], dict[str, Any], str, bool]:
    with st.container(horizontal=True, vertical_alignment="bottom", key="trial-filters"):
        known = [each for each in OUTCOMES if points.counts.get(each)]
        outcomes = st.multiselect("Outcome", known, key="outcome", width=250, bind="query-params", format_func=_spaced)
        order = st.selectbox("Order", list(ORDERS), key="order", width=140, bind="query-params")
        with st.popover("Knobs", icon=":material/tune:"):
            chosen = {name: _knob_filter(points, name) for name in points.searched[:MOST_KNOBS]}
        only = st.toggle(f"Selected only ({len(picked)})", key="only", disabled=not picked, bind="query-params")
    return outcomes, {name: value for name, value in chosen.items() if value is not None}, order or "newest", only


def _knob_filter(points: Points, name: str) -> Any:
    values = points.values(name)
    texts = {words.value(value): value for value in values}
    chosen = st.selectbox(name, list(texts), index=None, placeholder="any", key=f"knob_{name}", bind="query-params")
    return None if chosen is None else texts.get(chosen)


def _spaced(outcome: str) -> str:
    return outcome.replace("_", " ")


def _table(found: Sequence[TrialRecord], points: Points, picked: Sequence[int], reported: Reported) -> None:
    numbers = tuple(each.number for each in found)
    chosen = [at for at, number in enumerate(numbers) if number in picked]
    key = f"table {hash((numbers, st.session_state.get('cleared', 0)))}"
    st.session_state["table rows"] = (key, numbers)
    st.dataframe(
        _without_empty([row(each, points, reported) for each in found]),
        key=key,
        hide_index=True,
        placeholder="",
        on_select=_picked_rows,
        selection_mode="multi-row",
        selection_default={"selection": {"rows": chosen}},
        column_config=_columns(points),
        alt="The trials of this page with outcome, throughput, peak memory and knobs.",
    )


def _without_empty(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without columns in which nothing stands."""
    kept = [name for name in rows[0] if any(each[name] is not None for each in rows)]
    return [{name: each[name] for name in kept} for each in rows]


def row(each: TrialRecord, points: Points, reported: Reported) -> dict[str, Any]:
    """One trial as a row; figures keep their numbers, so that columns sort."""
    scale, _ = look.memory_scale(float(max(points.peak[points.peak == points.peak], default=0.0)))
    return {
        "trial": each.number,
        "outcome": _spaced(each.outcome or "running") + (f": {each.cause}" if each.cause else ""),
        "throughput": reported.of(each),
        "peak": None if each.peak_memory_bytes is None else each.peak_memory_bytes / scale,
        "predicted": None if each.predicted_peak_memory_bytes is None else each.predicted_peak_memory_bytes / scale,
        "seconds": each.seconds or None,
        **{name: words.value(each.config.get(name)) for name in points.searched},
    }


def _columns(points: Points) -> Mapping[str, Any]:
    _, unit = look.memory_scale(float(max(points.peak[points.peak == points.peak], default=0.0)))
    number = st.column_config.NumberColumn
    return {
        "trial": number("trial", format="%d", width=60, pinned=True),
        "outcome": st.column_config.TextColumn("outcome", width=150),
        "throughput": number(look.unit_words(points.unit), format="localized", step=1),
        "peak": number(f"peak, {unit}", format="%.2f" if unit == "GiB" else "%.0f"),
        "predicted": number(f"predicted, {unit}", format="%.2f" if unit == "GiB" else "%.0f"),
        "seconds": number("device time, s", format="%.1f"),
    }


def _picked_rows() -> None:
    """Ticked rows join the selection, rows no longer ticked leave it; trials of other pages stay in it."""
    key, numbers = st.session_state["table rows"]
    ticked = {numbers[at] for at in st.session_state[key]["selection"]["rows"] if at < len(numbers)}
    links.pick_trials(sorted((set(links.picked_trials()) - set(numbers)) | ticked))


def _pages(total: int, shown: int) -> None:
    pages = -(-total // PAGE)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.caption(f"{shown:,} of {total:,} trials")
        if pages > 1:
            st.pagination(pages, key="rows", bind="query-params", max_visible_pages=5, width=300)
