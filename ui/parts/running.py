"""What runs now: each open run with its worker, phase and step rate, its age beside the usual, memory and limit."""

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
                _card(each, study, usual, points.unit)
        return
    _why_nothing(study)


def usual_seconds(points: Points) -> float | None:
    """What a trial of this study took, the middle one; None before there is any."""
    known = [float(each) for each, outcome in zip(points.seconds, points.outcomes, strict=True) if outcome and each > 0]
    return median(known) if known else None


def _card(each: Ongoing, study: StudyRecord, usual: float | None, unit: str | None) -> None:
    trial = each.trial
    with st.container(border=True):
        what = PURPOSES.get(each.run.purpose, each.run.purpose)
        st.markdown(f"**{f'Trial {trial.number}' if trial else 'The study'}**: {markdown(what)}")
        st.text(where(each))
        st.text(words.doing(each.run.progress, unit))
        _age(each.seconds, None if trial is None else usual)
        filled = memory(each, study.memory_limit_bytes)
        if filled is not None:
            st.progress(filled[0], text=filled[1])
        if trial is not None:
            st.caption(
                markdown(", ".join(f"{name} {words.value(value)}" for name, value in _told(trial.config, study)))
            )


def memory(each: Ongoing, limit_bytes: int | None) -> tuple[float, str] | None:
    """How full the memory is: the share of the limit from 0 to 1, and the same in words.

    The peak so far where the run has measured it, else what was predicted; None where neither or no limit is known.
    """
    peak = (each.run.progress or {}).get("memory_bytes")
    predicted = None if each.trial is None else each.trial.predicted_peak_memory_bytes
    known, what = (peak, "memory") if peak is not None else (predicted, "predicted")
    if known is None or not limit_bytes:
        return None
    beside = f", predicted {words.size(predicted)}" if peak is not None and predicted is not None else ""
    return min(known / limit_bytes, 1.0), f"{what} {words.size(known)} of {words.size(limit_bytes)}{beside}"


def _age(seconds: float, usual: float | None) -> None:
    """How long it has been running, beside what such a run takes where that is known."""
    if not usual:
        st.text(f"for {words.duration(seconds)}")
        return
    over = f"longer than usual ({words.duration(usual)})"
    ending = f"about {words.duration(usual - seconds)} left" if seconds < usual else over
    st.progress(min(seconds / usual, 1.0), text=f"{words.duration(seconds)}, {ending}")


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
