"""The front on the page: how to see it, the chart, and what a click or a box selects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from storage.records import StudyRecord
from ui import data, links
from ui.charts.front import Choices, Picture, YAxis, front_figure
from ui.points import Points
from ui.reported import Reported

AXES: Mapping[YAxis, str] = {
    "throughput": "throughput", "per_device": "per device", "mfu": "MFU", "energy": "energy",
}  # fmt: skip
DRAWN, SELECTED_ON = "front drawn", "selected on"
"""Kept in the session: selections that figures were drawn with; the chart of the last selection."""
LIKED = ("precision", "activation_checkpointing", "micro_batch_size", "attention", "optimizer", "loss")
"""Knobs that are shown by colour and shape first, where a study searches them."""
CONFIG = {"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["toImage"], "scrollZoom": False}


def draw(study: StudyRecord, points: Points, answer: Mapping[str, Any], ranks: int) -> None:
    """Controls and chart."""
    choices = _controls(study, points, ranks)
    figure, key = _figure(study, choices, _kept_picks(study, points, choices), ranks)
    with st.container(key="front"):
        st.plotly_chart(
            figure,
            key=key,
            on_select=partial(_selected, key),
            selection_mode=("points", "box", "lasso"),
            config=CONFIG,
            alt=_described(answer, points),
        )


def picture(study: StudyRecord, choices: Choices, picked: frozenset[int], ranks: int) -> Picture:
    """Everything the chart shows, read from the store."""
    answer = data.answer(study)
    return Picture(
        points=data.points(study),
        limit_bytes=study.memory_limit_bytes,
        front=[each["number"] for each in answer.get("front") or []],
        winner=(answer.get("best") or {}).get("number"),
        knee=answer.get("knee"),
        reported=Reported.of_answer(answer),
        ranks=ranks,
        figures=axis_figures(study, choices.y),
        picked=picked,
    )


def axis_figures(study: StudyRecord, axis: YAxis) -> Mapping[int, float]:
    """What an axis other than throughput shows, by trial number."""
    if axis == "mfu":
        return data.figures(study, "mfu")
    if axis == "energy":
        joules, rates = data.figures(study, "energy_joules"), data.figures(study, "throughput")
        seconds = data.figures(study, "window_seconds")
        return {
            number: value / (rates[number] * seconds[number])
            for number, value in joules.items()
            if rates.get(number) and seconds.get(number)
        }
    return {}


@st.cache_resource(show_spinner=False, max_entries=24)
def _cached(
    place: str, study_id: int, version: int, choices: Choices, picked: frozenset[int], ranks: int, _of: StudyRecord
) -> tuple[go.Figure, str]:
    """The figure and a name for it: a figure that looks the same keeps its place, zoom and selection on the page."""
    figure = front_figure(picture(_of, choices, picked, ranks), choices)
    return figure, f"front-{study_id}-{sha256(figure.to_json().encode()).hexdigest()[:16]}"


def _figure(study: StudyRecord, choices: Choices, picked: frozenset[int], ranks: int) -> tuple[go.Figure, str]:
    return _cached(data.store().safe_url, study.id, study.version, choices, picked, ranks, study)


def _controls(study: StudyRecord, points: Points, ranks: int) -> Choices:
    knobs = list(points.searched)
    first = [each for each in LIKED if each in knobs] + [each for each in knobs if each not in LIKED]
    axes = _axes(study, ranks)
    with st.container(horizontal=True, vertical_alignment="bottom", key="front-controls"):
        colour = st.selectbox(
            "Colour by", [*first, "nothing"], key="colour", width=210, bind="query-params", disabled=not knobs
        )
        shapes = [*first[1:], *first[:1], "nothing"]
        shape = st.selectbox("Shape by", shapes, key="shape", width=210, bind="query-params", disabled=not knobs)
        if len(axes) > 1:
            axis = st.selectbox(
                "Upright", axes, key="y", format_func=lambda each: AXES[each], width=160, bind="query-params"
            )
        else:
            axis = axes[0]
        log = st.toggle("Log scale", key="log", bind="query-params")
    return Choices(
        colour=colour if colour in knobs else None,
        shape=shape if shape in knobs else None,
        y=axis,
        log=log,
    )


def _axes(study: StudyRecord, ranks: int) -> list[YAxis]:
    """Only axes that this study has figures for."""
    found: list[YAxis] = ["throughput"]
    if ranks > 1:
        found.append("per_device")
    if data.figures(study, "mfu"):
        found.append("mfu")
    if data.figures(study, "energy_joules"):
        found.append("energy")
    return found


def _kept_picks(study: StudyRecord, points: Points, choices: Choices) -> frozenset[int]:
    """The selection as it was when this figure was first drawn: the chart itself shows what came after that.

    A figure that changes with every selection would lose its zoom and the box just drawn.
    """
    drawn = st.session_state.setdefault(DRAWN, {})
    key = (study.id, points.fingerprint, choices)
    if key not in drawn:
        drawn.clear()
        drawn[key] = frozenset(links.picked_trials())
    kept: frozenset[int] = drawn[key]
    return kept


def _selected(key: str) -> None:
    """A click, a box or a lasso: the selection goes to the address, and from there to the table and the comparison.

    A chart that was just put onto the page says that nothing is selected on it; that takes nothing back.
    """
    event = st.session_state.get(key) or {}
    numbers = numbers_of(event["selection"]["points"] if "selection" in event else ())
    if numbers:
        st.session_state[SELECTED_ON] = key
    elif st.session_state.get(SELECTED_ON) != key:
        return
    links.pick_trials(numbers)


def numbers_of(chosen: Sequence[Mapping[str, Any]]) -> list[int]:
    """The trials of selected points."""
    found = (each["customdata"] for each in chosen if each.get("customdata"))
    return sorted({int(data[0]) if not isinstance(data, int) else data for data in found})


def _described(answer: Mapping[str, Any], points: Points) -> str:
    best, front = answer.get("best"), answer.get("front") or []
    winner = f" The winner is trial {best['number']}." if best else ""
    return f"Throughput against peak memory of {len(points)} trials, {len(front)} of them on the front.{winner}"
