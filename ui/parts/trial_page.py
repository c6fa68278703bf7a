"""A trial's page: every figure that is known of it, and the evidence of every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from objectives.script.launchers import ranks_of
from storage.records import RunRecord, StudyRecord, TrialRecord
from tuner.cli import words
from ui import data, links
from ui.charts import timelines
from ui.parts import compare
from ui.parts.front import CONFIG
from ui.parts.live import reload_on_change
from ui.parts.run_evidence import draw_run
from ui.parts.study_head import number
from ui.plain import markdown
from ui.reported import Reported

MOST_LINES = 8
"""Runs whose steps are drawn; a table lists all."""


def draw(study: StudyRecord, number: int) -> None:
    """The page of one trial of a study."""
    trial = data.trial(study, number)
    _draw_path(study, number)
    if trial is None:
        st.info(f"This study has no trial {number}. Its trials are numbered from 0 to {len(data.points(study)) - 1}.")
        return
    live = trial.outcome is None and study.status in data.OPEN
    reload_on_change(lambda: _version(study.name), study.version, live=live)
    runs = data.trial_runs(study, trial.id)
    _draw_numbers(trial, Reported.of_answer(data.answer(study)))
    st.text(batch_line(trial.config, study.spec))
    _draw_reason(trial)
    left, right = st.columns(2, gap="medium")
    with left:
        st.subheader("Configuration", anchor=False)
        baseline = data.trial(study, 0)
        rows = compare.config_rows(trial.config, baseline.config if baseline else {})
        st.dataframe(rows, hide_index=True, height="content", alt="The configuration, and where the baseline differs.")
    with right:
        _draw_memory(study, trial)
        _draw_time(runs)
    _draw_runs(runs)


def _version(name: str) -> int | None:
    now = data.study(name)
    return None if now is None else now.version


def _draw_path(study: StudyRecord, number: int) -> None:
    st.title(f"Trial {number}", anchor=False)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.page_link(
            links.STUDY_PAGE,
            label=markdown(study.name),
            icon=":material/arrow_back:",
            query_params={"study": study.name},
        )
        for step, label in ((-1, "previous"), (1, "next")):
            other = number + step
            if 0 <= other < len(data.points(study)):
                st.page_link(
                    links.TRIAL_PAGE, label=f"{label}: {other}", query_params={"study": study.name, "trial": str(other)}
                )


def batch_line(config: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """The batch as four numbers whose product is checked: ``4 per device x 8 accumulated x 1 device = 32 samples``."""
    size, steps = int(config.get("micro_batch_size") or 1), int(config.get("accumulation_steps") or 1)
    ranks = ranks_of((spec.get("objective") or {}).get("settings") or {})
    asked, product = spec.get("global_batch_size"), size * steps * ranks
    devices = f"{ranks} device{'' if ranks == 1 else 's'}"
    line = f"Batch: {size} per device x {steps} accumulated x {devices} = {product:,} samples"
    return line if asked in (None, product) else f"{line}, NOT the study's global batch of {asked:,}"


def _draw_numbers(trial: TrialRecord, reported: Reported) -> None:
    predicted, windows = trial.predicted_peak_memory_bytes, trial.windows
    with st.grid(columns=4, min_column_width=170, gap="small", key="trial-numbers"):
        said = trial.cause or ("confirmed" if trial.confirmed else f"proposed by {trial.source}")
        number("Outcome", (trial.outcome or "running").replace("_", " "), markdown(said))
        rate = words.rate(reported.of(trial), trial.throughput_unit)
        number("Throughput", rate, f"{windows} window{'' if windows == 1 else 's'}")
        before = "not predicted" if predicted is None else f"predicted {words.size(predicted)}"
        number("Peak memory", words.size(trial.peak_memory_bytes), before)
        number("Device time", words.duration(trial.seconds), "search and repeats")


def _draw_reason(trial: TrialRecord) -> None:
    """Why it ended so, and the advice, for a trial that did not complete."""
    text, advice = trial.evidence.get("text"), trial.evidence.get("advice")
    if trial.outcome in (None, "completed") or not (text or advice):
        return
    with st.container(border=True):
        if text:
            st.text(str(text)[:2000])
        if advice:
            st.text(f"What to do: {advice}")


def _draw_memory(study: StudyRecord, trial: TrialRecord) -> None:
    rows = memory_rows(study.facts, trial)
    if not rows:
        return
    st.subheader("Memory at the peak", anchor=False)
    figure = timelines.memory_bars(rows, study.memory_limit_bytes)
    st.plotly_chart(figure, key="memory", config=CONFIG, alt="Predicted and measured peak memory by category.")


def memory_rows(facts: Mapping[str, Any], trial: TrialRecord) -> list[tuple[str, Mapping[str, float]]]:
    """The bars: predicted by category where the estimate says, measured by what the device's counters tell apart."""
    rows: list[tuple[str, Mapping[str, float]]] = []
    said = ((facts.get("predictions") or {}).get(trial.config_key) or {}).get("categories") or {}
    predicted = {name: float(size) for name, size in said.items() if isinstance(size, int | float) and size > 0}
    if predicted or trial.predicted_peak_memory_bytes is not None:
        rows.append(("predicted", predicted or {"all": float(trial.predicted_peak_memory_bytes or 0)}))
    measured = _measured_parts(trial)
    return [*rows, ("measured", measured)] if measured else rows


def _measured_parts(trial: TrialRecord) -> dict[str, float]:
    memory = trial.metrics.get("memory") or {}
    allocated, reserved = memory.get("peak_allocated_bytes"), memory.get("peak_reserved_bytes")
    if allocated is None or reserved is None:
        return {} if trial.peak_memory_bytes is None else {"all": float(trial.peak_memory_bytes)}
    parts = {
        "tensors": allocated,
        "held by the allocator beside them": reserved - allocated,
        "outside it": memory.get("outside_bytes"),
    }
    return {name: float(size) for name, size in parts.items() if size}


def _draw_time(runs: Sequence[RunRecord]) -> None:
    told = [(f"{run.purpose} {run.attempt}", run) for run in runs if run.measurement][-MOST_LINES:]
    if not told:
        return
    st.subheader("Where the time went", anchor=False)
    figure = timelines.stage_bars([(name, run.measurement) for name, run in told])
    st.plotly_chart(figure, key="stages", config=CONFIG, alt="Seconds of each run by stage.")
    stepped = [(name, run.step_seconds) for name, run in told if run.step_seconds]
    if stepped:
        st.subheader("Steps", anchor=False)
        st.plotly_chart(timelines.step_lines(stepped), key="steps", config=CONFIG, alt="Step times of each run.")


def _draw_runs(runs: Sequence[RunRecord]) -> None:
    st.subheader("Runs", anchor=False)
    if not runs:
        st.text("No run of it is stored.")
    for run in runs:
        draw_run(run)
