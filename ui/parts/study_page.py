"""A study's page put together: each part drawn where there is something to draw, else why there is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from objectives.script.launchers import ranks_of
from storage.records import StudyRecord
from tuner.cli import words
from ui import data
from ui.charts.progress import best_over_time, outcome_bars
from ui.parts import compare, front, running, study_head, study_rows, trials, why
from ui.parts.live import reload_on_change, ticking
from ui.plain import markdown
from ui.points import Points
from ui.reported import Reported

Document = Mapping[str, Any]


def draw(study: StudyRecord) -> None:
    """The page of a stored study; it follows the store while the study may change."""
    live = study.status in data.OPEN
    points, answer = data.points(study), data.answer(study)
    reload_on_change(lambda: _state(study.name), (study.version, study.status), live=live or study.status == "paused")
    study_head.draw(study, points, answer)
    if live:
        ticking(lambda: running.draw(study, points), every=1.0, key="running")
    if not len(points):
        _draw_no_trial(study)
        return
    _explain_emptiness(study, points, answer)
    ranks = ranks_of((study.spec.get("objective") or {}).get("settings") or {})
    st.subheader("The front: throughput against peak memory", anchor=False)
    front.draw(study, points, answer, ranks)
    reported = Reported.of_answer(answer)
    compare.draw(study, answer, reported)
    _draw_story(study, points, answer, reported)
    study_head.draw_notices(answer)
    st.subheader("Trials", anchor=False)
    trials.draw(study, points, reported)


def draw_no_study() -> None:
    """The page without any study in the store."""
    st.title("Study", anchor=False)
    study_rows.draw_empty()


def _state(name: str) -> tuple[int, str] | None:
    now = data.study(name)
    return None if now is None else (now.version, now.status)


def _draw_story(study: StudyRecord, points: Points, answer: Document, reported: Reported) -> None:
    st.subheader("Why it won: one change after the other", anchor=False)
    why.draw(answer)
    place = data.store().safe_url
    over_time, outcomes = _story_figures(place, study.id, study.version, study.memory_limit_bytes, points, reported)
    left, right = st.columns(2, gap="medium")
    with left:
        st.subheader("Best over device time", anchor=False)
        st.plotly_chart(over_time, key="best", config=front.CONFIG, alt="The best throughput so far over device time.")
    with right:
        st.subheader("How trials ended", anchor=False)
        st.plotly_chart(outcomes, key="outcomes", config=front.CONFIG, alt="Number of trials by outcome.")


@st.cache_resource(show_spinner=False, max_entries=24)
def _story_figures(
    place: str, study_id: int, version: int, limit_bytes: int | None, _points: Points, _reported: Reported
) -> tuple[go.Figure, go.Figure]:
    """Made once for everybody who watches: making a figure costs more than all else on the page."""
    return best_over_time(_points, _reported.column(_points), limit_bytes), outcome_bars(_points)


def _draw_no_trial(study: StudyRecord) -> None:
    if study.status == "failed":
        st.warning("It ended before its first trial; the reason stands above.", icon=":material/error:")
    elif study.status in ("queued", "running"):
        st.info("No trial yet: the first appears here by itself.", icon=":material/hourglass_empty:")
    else:
        st.info("No trial was made.", icon=":material/info:")


def _explain_emptiness(study: StudyRecord, points: Points, answer: Document) -> None:
    """Where nothing can be picked: why, and what to do."""
    if answer.get("front") or not points.counts:
        return
    st.warning(" ".join(map(markdown, _no_front(study, points))), icon=":material/warning:")


def _no_front(study: StudyRecord, points: Points) -> tuple[str, str]:
    """The reason that really holds, and the way out."""
    smallest, limit = points.peak[points.measured()].min(initial=np.inf), study.memory_limit_bytes
    if np.isfinite(smallest) and limit is not None:
        return (
            f"Nothing fits: the smallest trial needs {words.size(smallest)}, the limit is {words.size(limit)}.",
            "Raise the memory limit, or search smaller micro-batches, more checkpointing or a leaner precision.",
        )
    if points.counts.get("device_oom", 0) == sum(points.counts.values()):
        return (
            "Every trial ran out of memory.",
            "Search smaller micro-batches, activation checkpointing or a leaner precision, or raise the memory limit.",
        )
    return "No trial completed.", "The table below says how each ended; open one to see its evidence and its log."
