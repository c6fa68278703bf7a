"""How the search went: the best over device time, and how trials ended. Pure."""

from __future__ import annotations

from collections import Counter

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from storage.models import OUTCOMES
from tuner.cli import words
from ui.charts import look
from ui.plain import chart_text
from ui.points import Floats, Points

OUTCOME_COLOURS = {
    "completed": "#009E73", "pruned": "#56B4E9", "device_oom": "#C9434F", "cancelled": "#C4C9CF", "infra": "#8A8F98",
}  # fmt: skip
OTHER_OUTCOME = "#E69F00"
HOUR, MOST_DOTS = 3600.0, 400


def best_over_time(points: Points, throughput: Floats, limit_bytes: int | None) -> go.Figure:
    """The best feasible throughput so far over the device time spent, trial by trial.

    Args:
        points: The trials.
        throughput: Units per second by trial, all on one level.
        limit_bytes: The memory limit; None for none.
    """
    spent = np.cumsum(np.nan_to_num(points.seconds))
    fits = points.feasible(limit_bytes) & np.isfinite(throughput)
    best = np.maximum.accumulate(np.where(fits, throughput, -np.inf)) if len(points) else throughput
    scale, unit = (HOUR, "hours") if len(spent) and spent[-1] > 2 * HOUR else (60.0, "minutes")
    known = np.isfinite(best)
    figure = go.Figure()
    steps = np.flatnonzero(known & np.concatenate([[True], np.diff(np.where(known, best, 0.0)) != 0])[: len(best)])
    _add_attempts(figure, points, throughput, spent / scale, fits)
    if len(steps):
        x, y = np.append(spent[steps] / scale, spent[-1] / scale), np.append(best[steps], best[steps[-1]])
        line = {"color": look.WINNER, "width": 2.2, "shape": "hv"}
        figure.add_trace(go.Scatter(x=x, y=y, mode="lines", name="best so far", line=line, hoverinfo="skip"))
    if len(points) and points.numbers[0] == 0 and np.isfinite(throughput[0]):
        figure.add_hline(y=throughput[0], line={"color": look.GREY, "dash": "dot", "width": 1.4})
        figure.add_annotation(
            text="baseline", xref="paper", x=1, y=throughput[0], xanchor="right", yanchor="bottom", showarrow=False,
            font={"color": look.GREY},
        )  # fmt: skip
    look.framed(figure, height=300, hovermode="closest")
    figure.update_xaxes(title=f"device time, {unit}", rangemode="tozero")
    figure.update_yaxes(title=f"throughput, {look.unit_words(points.unit)}", tickformat="~s", rangemode="tozero")
    return figure


def _add_attempts(figure: go.Figure, points: Points, throughput: Floats, at: Floats, fits: NDArray[np.bool_]) -> None:
    """Every feasible trial where it ended; of very many, one in so many."""
    mine = np.flatnonzero(fits)
    mine = mine[:: max(1, len(mine) // MOST_DOTS)]
    if not len(mine):
        return
    texts = [f"trial {points.numbers[each]}, {words.rate(throughput[each], points.unit)}" for each in mine]
    figure.add_trace(
        go.Scatter(
            x=at[mine], y=throughput[mine], mode="markers", name="trials", text=texts,
            hovertemplate="%{text}<extra></extra>", marker={"color": look.COLOURS[4], "size": 6, "opacity": 0.9},
        )
    )  # fmt: skip


def outcome_bars(points: Points) -> go.Figure:
    """How many trials ended how, a bar an outcome, its causes apart."""
    pairs = Counter(zip(points.outcomes, points.causes, strict=True))
    outcomes = [each for each in OUTCOMES if points.counts.get(each)]
    figure = go.Figure()
    for (outcome, cause), many in pairs.most_common():
        if outcome is None:
            continue
        said = outcome.replace("_", " ") + (f": {cause}" if cause else "")
        figure.add_trace(
            go.Bar(
                x=[many], y=[outcome.replace("_", " ")], orientation="h", name=chart_text(said), showlegend=False,
                marker={"color": OUTCOME_COLOURS.get(outcome, OTHER_OUTCOME), "line": {"width": 1, "color": "white"}},
                text=chart_text(cause or "") + f" {many:,}".rstrip(), textposition="auto", insidetextanchor="middle",
                hovertemplate=f"{chart_text(said)}<br>{many:,} trials<extra></extra>",
            )
        )  # fmt: skip
    look.framed(figure, height=90 + 34 * max(len(outcomes), 1), barmode="stack")
    figure.update_yaxes(categoryorder="array", categoryarray=[each.replace("_", " ") for each in reversed(outcomes)])
    figure.update_xaxes(title="trials")
    return figure
