"""What runs now: each open run with its worker, its age beside what such runs took, its memory beside the limit."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import streamlit as st

from storage.records import StudyRecord
from tuner.cli import words
from ui import data
from ui.data import Ongoing
from ui.plain import markdown
from ui.points import Points

PURPOSES = {
    "search": "measuring",
    "repeat": "measuring again",
    "confirm": "confirming",
    "capability": "asking what this device can run",
    "estimate": "predicting memory",
    "loader_capacity": "measuring the data loader",
    "soak": "soaking",
    "profile": "profiling",
    "verify": "verifying",
}
"""What a run is there for, by its purpose."""


def draw(study: StudyRecord, points: Points) -> None:
    """The open runs of a study that may change; why nothing runs where nothing does."""
    found = data.ongoing(study)
    if found:
        usual = usual_seconds(points)
        with st.grid(columns="auto", min_column_width=330, gap="small", key="running"):
            for each in found:
                _card(each, study, usual)
        return
    _why_nothing(study)


def usual_seconds(points: Points) -> float | None:
    """What a trial of this study took, the middle one; None before there is any."""
    known = [float(each) for each, outcome in zip(points.seconds, points.outcomes, strict=True) if outcome and each > 0]
    return median(known) if known else None


def _card(each: Ongoing, study: StudyRecord, usual: float | None) -> None:
    trial, limit = each.trial, study.memory_limit_bytes
    with st.container(border=True):
        what = PURPOSES.get(each.run.purpose, each.run.purpose)
        st.markdown(f"**{f'Trial {trial.number}' if trial else 'The study'}**: {markdown(what)}")
        st.text(where(each))
        left = None if usual is None else usual - each.seconds
        age = words.duration(each.seconds)
        if usual is None or trial is None:
            st.text(f"for {age}")
        else:
            share = min(each.seconds / usual, 1.0) if usual else 1.0
            ending = (
                f"about {words.duration(left)} left"
                if left and left > 0
                else f"longer than usual ({words.duration(usual)})"
            )
            st.progress(share, text=f"{age}, {ending}")
        predicted = None if trial is None else trial.predicted_peak_memory_bytes
        if predicted is not None and limit:
            st.progress(min(predicted / limit, 1.0), text=f"predicted {words.size(predicted)} of {words.size(limit)}")
        if trial is not None:
            st.caption(
                markdown(", ".join(f"{name} {words.value(value)}" for name, value in _told(trial.config, study)))
            )


def _told(config: object, study: StudyRecord) -> Sequence[tuple[str, object]]:
    """The knobs that this study searches, with their values."""
    searched = study.spec.get("search") or {}
    assert isinstance(config, dict)
    return [(name, config[name]) for name in searched if name in config]


def where(each: Ongoing) -> str:
    """Who runs it, in one line."""
    if each.worker is None:
        return "on this machine, by tuner run"
    silent = ", silent: its lease has ended" if each.silent else ""
    return f"{each.worker.device_name} on {each.worker.host}{silent}"


def _why_nothing(study: StudyRecord) -> None:
    if study.status == "running":
        st.info("Nothing runs this moment: the search decides what comes next.", icon=":material/hourglass_empty:")
        return
    alive = data.living_workers()
    needs = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in study.needs.items())
    if not alive:
        st.warning(
            "It waits for a worker, and none is alive. Start one on a machine with a device:",
            icon=":material/hourglass_empty:",
        )
        st.code("tuner worker", language="bash")
        return
    st.info(
        f"It waits for a free worker{markdown(f' with {needs}') if needs else ''}: {len(alive)} alive.",
        icon=":material/hourglass_empty:",
    )
