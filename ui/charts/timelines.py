"""One trial's time and memory: steps of each run, where a run's time went, predicted beside measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from tuner.cli import words
from ui.charts import look
from ui.plain import chart_text

STAGES = (
    ("setup_seconds", "set-up"), ("compile", "compile"), ("worst_case_seconds", "worst case"),
    ("warm_up_seconds", "warm-up"), ("window_seconds", "measuring"),
)  # fmt: skip
"""What a run spends its time on, in order, and where its measurement says so."""


def step_lines(runs: Sequence[tuple[str, Sequence[float]]]) -> go.Figure:
    """Optimizer-step times of each run's measured window, in milliseconds.

    Args:
        runs: Name and step times (seconds) of each run.
    """
    figure = go.Figure()
    for at, (name, seconds) in enumerate(runs):
        figure.add_trace(
            go.Scatter(
                x=list(range(1, len(seconds) + 1)), y=[1000 * each for each in seconds], name=chart_text(name),
                mode="lines+markers", line={"width": 1.4, "color": look.COLOURS[at % len(look.COLOURS)]},
                marker={"size": 6, "symbol": look.SHAPES[at % len(look.SHAPES)]},
                hovertemplate=f"{chart_text(name)}<br>step %{{x}}: %{{y:,.1f}} ms<extra></extra>",
            )
        )  # fmt: skip
    look.framed(figure, height=320, hovermode="closest")
    figure.update_xaxes(title="step of the measured window")
    figure.update_yaxes(title="step time, ms", rangemode="tozero")
    return figure


def stage_bars(runs: Sequence[tuple[str, Mapping[str, Any]]]) -> go.Figure:
    """Where each run's wall time went, in seconds.

    Args:
        runs: Name and measurement of each run.
    """
    figure = go.Figure()
    names = [chart_text(name) for name, _ in runs]
    for at, (key, said) in enumerate(STAGES):
        seconds = [stage_seconds(measurement, key) for _, measurement in runs]
        if any(seconds):
            figure.add_trace(
                go.Bar(
                    y=names, x=seconds, name=said, orientation="h", marker={"color": look.COLOURS[at]},
                    hovertemplate=f"%{{y}}<br>{said}: %{{x:.2f}} s<extra></extra>",
                )
            )  # fmt: skip
    look.framed(figure, height=110 + 26 * max(len(names), 1), barmode="stack")
    figure.update_yaxes(autorange="reversed")
    figure.update_xaxes(title="seconds")
    return figure


def stage_seconds(measurement: Mapping[str, Any], key: str) -> float | None:
    """Seconds of a stage; None where the run does not say."""
    found = measurement.get(key)
    found = found.get("seconds") if isinstance(found, Mapping) else found
    return float(found) if isinstance(found, int | float) else None


def memory_bars(rows: Sequence[tuple[str, Mapping[str, float]]], limit_bytes: int | None) -> go.Figure:
    """Predicted and measured peak memory by category, against the limit.

    Args:
        rows: Name of each bar and its categories in bytes.
        limit_bytes: The limit; None for none.
    """
    largest = max((sum(parts.values()) for _, parts in rows), default=0.0)
    scale, unit = look.memory_scale(largest)
    figure = go.Figure()
    for at, category in enumerate(dict.fromkeys(category for _, parts in rows for category in parts)):
        said = chart_text(category.replace("_", " "))
        figure.add_trace(
            go.Bar(
                y=[name for name, _ in rows], x=[parts.get(category, 0.0) / scale for _, parts in rows], name=said,
                marker={"color": look.COLOURS[at % len(look.COLOURS)]}, orientation="h", insidetextanchor="middle",
                text=[words.size(parts.get(category)) for _, parts in rows], textposition="auto",
                hovertemplate=f"%{{y}}<br>{said}: %{{text}}<extra></extra>",
            )
        )  # fmt: skip
    look.framed(figure, height=130 + 40 * len(rows), barmode="stack")
    if limit_bytes is not None and limit_bytes < 1.6 * largest:
        figure.add_vline(x=limit_bytes / scale, line={"color": look.BAD, "dash": "dash"}, annotation_text="limit")
    figure.update_yaxes(autorange="reversed")
    figure.update_xaxes(title=f"peak memory, {unit}")
    return figure
