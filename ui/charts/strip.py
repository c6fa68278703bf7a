"""The strip under the front: trials without a throughput, where the prediction says they lie. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from tuner.cli import words
from ui.charts import look
from ui.points import Points


def add_strip(figure: go.Figure, points: Points, limit_bytes: int | None, scale: float) -> None:
    """Out-of-memory trials as crosses, running ones as dots; by predicted peak, without one at the limit."""
    gone = [at for at, outcome in enumerate(points.outcomes) if outcome == "device_oom"]
    running = [at for at, outcome in enumerate(points.outcomes) if outcome is None]
    _add(figure, points, limit_bytes, scale, (gone, "out of memory", look.BAD, "x-thin"))
    _add(figure, points, limit_bytes, scale, (running, "running", look.COLOURS[2], "circle-dot"))
    if gone or running:
        figure.update_layout(
            yaxis2={"range": [0, 1], "visible": False, "fixedrange": True, "anchor": "x"},
        )


def _add(
    figure: go.Figure, points: Points, limit_bytes: int | None, scale: float, kind: tuple[Sequence[int], str, str, str]
) -> None:
    ats, name, colour, sign = kind
    fallback = np.nan if limit_bytes is None else float(limit_bytes)
    where = {at: points.predicted[at] if np.isfinite(points.predicted[at]) else fallback for at in ats}
    drawn = [at for at in ats if np.isfinite(where[at])]
    if not drawn:
        return
    figure.add_trace(
        go.Scatter(
            x=[where[at] / scale for at in drawn], y=[_height(points.numbers[at]) for at in drawn], yaxis="y2",
            mode="markers", name=name, legendgroup="more",
            marker={"symbol": sign, "size": 8, "color": colour, "line": {"width": 1.6, "color": colour}, "opacity": 0.8},
            customdata=[[points.numbers[at], _where(points, at)] for at in drawn],
            hovertemplate=f"<b>trial %{{customdata[0]}}</b>, {name}<br>%{{customdata[1]}}<extra></extra>",
        )
    )  # fmt: skip


def _where(points: Points, at: int) -> str:
    predicted = points.predicted[at]
    return f"predicted {words.size(predicted)}" if np.isfinite(predicted) else "no prediction: drawn at the limit"


def _height(number: int) -> float:
    """Spread over the strip, always the same for a trial (the golden ratio's steps never bunch)."""
    return 0.1 + 0.8 * ((number * 0.6180339887) % 1.0)
