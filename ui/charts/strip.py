"""The strip under the front: trials without a throughput, where the prediction says they lie. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from ui.charts import look
from ui.charts.hover import Hover
from ui.charts.thinning import strip_thinned
from ui.points import Floats, Points

HIGH = 0.09
"""Its share of the figure's height."""
FAR = 1.4


def add_strip(figure: go.Figure, points: Points, limit_bytes: int | None, scale: float, hover: Hover) -> bool:
    """Out-of-memory trials as crosses, running ones as hourglasses; by predicted peak, without one at the limit.

    What lies far beyond all that was measured stands at the edge: drawing it in place would squeeze everything else.

    Args:
        figure: Drawn upon; its ``yaxis2`` is the strip.
        points: The trials.
        limit_bytes: The memory limit; None for none.
        scale: Bytes of one step of the memory axis.
        hover: What a point says.

    Returns:
        Whether there is anything in it.
    """
    gone = [at for at, outcome in enumerate(points.outcomes) if outcome == "device_oom"]
    running = [at for at, outcome in enumerate(points.outcomes) if outcome is None]
    where = np.where(np.isfinite(points.predicted), points.predicted, np.nan if limit_bytes is None else limit_bytes)
    where = np.minimum(where, edge(points, limit_bytes))
    _add(figure, points, where / scale, hover, (gone, "out of memory", look.BAD, "x-thin"))
    _add(figure, points, where / scale, hover, (running, "running", look.GREY, "hourglass"))
    if not any(np.isfinite(where[at]) for at in (*gone, *running)):
        return False
    figure.update_layout(
        yaxis2={"range": [0, 1], "visible": False, "fixedrange": True, "anchor": "x", "domain": [0, HIGH]}
    )
    return True


def edge(points: Points, limit_bytes: int | None) -> float:
    """The largest memory (bytes) that is drawn in its place; infinite where nothing was measured."""
    largest = float(np.max(points.peak[points.measured()], initial=0.0))
    return FAR * max(largest, min(limit_bytes or 0, FAR * largest)) if largest else np.inf


def _add(figure: go.Figure, points: Points, x: Floats, hover: Hover, kind: tuple[Sequence[int], str, str, str]) -> None:
    ats, name, colour, sign = kind
    drawn = strip_thinned([at for at in ats if np.isfinite(x[at])], x)
    if not drawn:
        return
    figure.add_trace(
        go.Scatter(
            x=x[drawn], y=[_height(points.numbers[at]) for at in drawn], yaxis="y2", mode="markers", name=name,
            legendgroup="more", opacity=0.85, customdata=hover.rows(drawn), hovertemplate=hover.template(),
            marker={"symbol": sign, "size": 8, "color": colour, "line": {"width": 1.6, "color": colour}},
        )
    )  # fmt: skip


def _height(number: int) -> float:
    """Spread over the strip, always the same for a trial (the golden ratio's steps never bunch)."""
    return 0.1 + 0.8 * ((number * 0.6180339887) % 1.0)
