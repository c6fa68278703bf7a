"""The front: throughput against peak memory, with everything that belongs beside it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from tuner.cli import words
from ui.charts import look
from ui.charts.hover import Hover
from ui.charts.strip import add_strip
from ui.charts.thinning import thinned
from ui.plain import chart_text
from ui.points import Floats, Points
from ui.reported import Reported

YAxis = Literal["throughput", "per_device", "mfu", "energy"]
Y_AXES: tuple[YAxis, ...] = get_args(YAxis)
GL_FROM = 2000
"""More points than this are drawn by WebGL (which takes a second to begin); :mod:`ui.charts.thinning` leaves fewer."""
FAR_LIMIT = 1.6
"""A limit beyond so many times the largest peak is named at the edge: drawing it would squeeze everything else."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """What the front shows beside the trials.

    Attributes:
        points: The trials.
        limit_bytes: The memory limit; None when there is none.
        front: Numbers on the Pareto front, fastest first.
        winner: The confirmed best; None without one.
        knee: None without a front.
        reported: The throughputs that are reported, with their intervals.
        ranks: Devices of one run.
        figures: By trial number, what the chosen axis shows where that is no throughput.
        picked: Numbers that were selected before this figure was drawn.
    """

    points: Points
    limit_bytes: int | None = None
    front: Sequence[int] = ()
    winner: int | None = None
    knee: int | None = None
    reported: Reported = field(default_factory=Reported)
    ranks: int = 1
    figures: Mapping[int, float] = field(default_factory=dict)
    picked: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Choices:
    """How a person wants to see it: knobs for colour and shape (None for neither), the upright axis, its scale."""

    colour: str | None = None
    shape: str | None = None
    y: YAxis = "throughput"
    log: bool = False


def front_figure(picture: Picture, choices: Choices) -> go.Figure:
    """The figure. Every point carries its trial's number as ``customdata[0]``."""
    points = picture.points
    y = heights(picture, choices.y)
    shown = thinned(points, y, _named(picture), (choices.colour, choices.shape))
    scale, unit = look.memory_scale(float(np.nanmax(points.peak, initial=0.0)))
    x = points.peak / scale
    figure = go.Figure()
    hover = Hover(points=points, throughput=picture.reported.column(points), intervals=picture.reported.intervals)
    _add_predictions(figure, points, shown, y, scale)
    _add_bounds(figure, points, x, y, hover)
    _add_trials(figure, (picture, choices), shown, (x, y), hover)
    _add_front_line(figure, picture, choices, (x, y))
    _add_marks(figure, picture, (x, y))
    has_strip = add_strip(figure, points, picture.limit_bytes, scale, hover)
    _add_limit(figure, picture, x, scale)
    _lay_out(figure, picture, choices, unit)
    if has_strip:
        figure.update_layout(xaxis={"anchor": "y2"}, yaxis={"domain": [0.13, 1]})
    return figure


def heights(picture: Picture, axis: YAxis) -> Floats:
    """The upright coordinate by trial; NaN where a trial has none."""
    points = picture.points
    if axis in ("mfu", "energy"):
        return np.array([picture.figures.get(number, np.nan) for number in points.numbers])
    return picture.reported.column(points) / (picture.ranks if axis == "per_device" else 1)


def y_title(axis: YAxis, unit: str | None) -> str:
    """What stands at the axis."""
    rate = look.unit_words(unit)
    titles = {
        "throughput": f"throughput, {rate}",
        "per_device": f"throughput per device, {rate}",
        "mfu": "MFU, share of the device's peak",
        "energy": f"energy, joules per {rate.split('/')[0].rstrip('s')}",
    }
    return titles[axis]


def _named(picture: Picture) -> frozenset[int]:
    """Trials that are drawn however many there are."""
    marks = (0, picture.winner, picture.knee)
    return frozenset(each for each in (*marks, *picture.front, *picture.picked) if each is not None)


def _add_trials(
    figure: go.Figure,
    asked: tuple[Picture, Choices],
    shown: NDArray[np.bool_],
    place: tuple[Floats, Floats],
    hover: Hover,
) -> None:
    picture, choices = asked
    points, (x, y) = picture.points, place
    kind = go.Scattergl if int(shown.sum()) > GL_FROM else go.Scatter
    values = points.values(choices.colour) if choices.colour else (None,)
    colours = look.colours_for(values)
    shapes = look.shapes_for(points.values(choices.shape) if choices.shape else (None,))
    inside = points.feasible(picture.limit_bytes)
    for value in values:
        mine = [
            at for at in np.flatnonzero(shown) if not choices.colour or points.configs[at].get(choices.colour) == value
        ]
        if not mine:
            continue
        name = words.value(value) if choices.colour else "trials"
        signs = [shapes[points.configs[at].get(choices.shape) if choices.shape else None] for at in mine]
        open_ones = [sign if inside[at] else f"{sign}-open" for sign, at in zip(signs, mine, strict=True)]
        figure.add_trace(
            kind(
                x=x[mine], y=y[mine], mode="markers", name=chart_text(name),
                marker={
                    "color": colours[value], "symbol": open_ones, "size": 9, "opacity": 0.85,
                    "line": {"width": 0.8, "color": "rgba(255,255,255,0.7)"},
                },
                customdata=hover.rows(mine), hovertemplate=hover.template(),
                legendgroup="colour",
                legendgrouptitle={"text": chart_text(choices.colour or "")} if choices.colour else None,
            )
        )  # fmt: skip
    if choices.shape and choices.shape != choices.colour:
        _add_shape_legend(figure, choices.shape, shapes)


def _add_shape_legend(figure: go.Figure, knob: str, shapes: Mapping[Any, str]) -> None:
    for value, shape in shapes.items():
        marker = {"symbol": shape, "color": look.GREY, "size": 9}
        figure.add_trace(
            go.Scatter(
                x=[None], y=[None], mode="markers", name=chart_text(words.value(value)), marker=marker,
                hoverinfo="skip", legendgroup="shape", legendgrouptitle={"text": chart_text(knob)},
            )
        )  # fmt: skip


def _add_predictions(figure: go.Figure, points: Points, shown: NDArray[np.bool_], y: Floats, scale: float) -> None:
    """Where the prediction saw the measured trials, faint."""
    mine = np.flatnonzero(shown & np.isfinite(points.predicted))
    if not len(mine):
        return
    kind = go.Scattergl if len(mine) > GL_FROM else go.Scatter
    figure.add_trace(
        kind(
            x=points.predicted[mine] / scale, y=y[mine], mode="markers", name="predicted memory",
            marker={"color": look.FAINT, "size": 6, "symbol": "circle-open"}, hoverinfo="skip",
            visible=True if len(mine) <= 300 else "legendonly", legendgroup="more",
        )
    )  # fmt: skip


def _add_bounds(figure: go.Figure, points: Points, x: Floats, y: Floats, hover: Hover) -> None:
    """Trials that were stopped because others beat them: not faster than here."""
    mine = [
        at for at, each in enumerate(points.outcomes) if each == "pruned" and np.isfinite(x[at]) and np.isfinite(y[at])
    ]
    if not mine:
        return
    figure.add_trace(
        go.Scattergl(
            x=x[mine], y=y[mine], mode="markers", name="stopped early: at most", legendgroup="more",
            marker={"color": look.GREY, "size": 8, "symbol": "triangle-down-open"},
            customdata=hover.rows(mine), hovertemplate=hover.template(),
        )
    )  # fmt: skip


def _add_front_line(figure: go.Figure, picture: Picture, choices: Choices, place: tuple[Floats, Floats]) -> None:
    """The line along the front, with the intervals as bars; it is a front of throughput and of nothing else."""
    if choices.y not in ("throughput", "per_device"):
        return
    points, (x, y) = picture.points, place
    ats = sorted((points.at[each] for each in picture.front if each in points.at), key=lambda at: x[at])
    ats = [at for at in ats if np.isfinite(y[at])]
    if not ats:
        return
    figure.add_trace(
        go.Scatter(
            x=x[ats], y=y[ats], mode="lines", name="front", hoverinfo="skip", legendgroup="more",
            line={"color": look.WINNER, "width": 2, "shape": "hv"}, error_y=_bars(picture, choices, ats, y),
        )
    )  # fmt: skip


def _bars(picture: Picture, choices: Choices, ats: Sequence[int], y: Floats) -> dict[str, Any]:
    """The 95 % intervals of the front's trials; no bar where there is none."""
    share = picture.ranks if choices.y == "per_device" else 1
    bounds = [picture.reported.intervals.get(picture.points.numbers[at]) for at in ats]
    pairs = list(zip((float(y[at]) for at in ats), bounds, strict=True))
    return {
        "type": "data", "symmetric": False, "thickness": 1.4, "width": 4, "color": look.WINNER,
        "array": [0.0 if each is None else max(each[1] / share - middle, 0.0) for middle, each in pairs],
        "arrayminus": [0.0 if each is None else max(middle - each[0] / share, 0.0) for middle, each in pairs],
    }  # fmt: skip


def _add_marks(figure: go.Figure, picture: Picture, place: tuple[Floats, Floats]) -> None:
    """Rings around the baseline, the winner and the knee, each with its name."""
    same = picture.knee == picture.winner
    marks = (
        ("baseline", 0, look.BASELINE, "square-open", "bottom right"),
        ("knee", None if same or len(picture.front) < 3 else picture.knee, look.KNEE, "diamond-open", "bottom right"),
        ("winner and knee" if same else "winner", picture.winner, look.WINNER, "circle-open", "top left"),
    )
    for name, number, colour, sign, where in marks:
        _add_ring(figure, picture, place, ([number], name, colour, sign, where))
    _add_ring(figure, picture, place, (sorted(picture.picked), "selected", look.COLOURS[0], "circle-open", ""))


def _add_ring(
    figure: go.Figure,
    picture: Picture,
    place: tuple[Floats, Floats],
    ring: tuple[Sequence[int | None], str, str, str, str],
) -> None:
    numbers, name, colour, sign, where = ring
    points, (x, y) = picture.points, place
    ats = [points.at[each] for each in numbers if each is not None and each in points.at]
    ats = [at for at in ats if np.isfinite(x[at]) and np.isfinite(y[at])]
    if not ats:
        return
    figure.add_trace(
        go.Scatter(
            x=x[ats], y=y[ats], mode="markers+text" if where else "markers", name=name, text=[name] * len(ats),
            textposition=where or None, textfont={"color": colour, "size": 12}, hoverinfo="skip", showlegend=not where,
            marker={"symbol": sign, "size": 17, "color": colour, "line": {"width": 2.4, "color": colour}},
            legendgroup="more", cliponaxis=False,
        )
    )  # fmt: skip


def _add_limit(figure: go.Figure, picture: Picture, x: Floats, scale: float) -> None:
    """The memory limit as a line; where it is far away, its name at the edge."""
    if picture.limit_bytes is None:
        return
    limit, name = picture.limit_bytes / scale, f"limit {words.size(picture.limit_bytes)}"
    seen = np.concatenate([x, picture.points.predicted / scale])
    largest = float(np.nanmax(seen, initial=0.0))
    if largest and limit > FAR_LIMIT * largest:
        figure.add_annotation(
            text=f"{name} →", xref="paper", yref="paper", x=1, y=1.0, yanchor="bottom", xanchor="right",
            showarrow=False, font={"color": look.BAD},
        )  # fmt: skip
        return
    figure.add_vline(x=limit, line={"color": look.BAD, "width": 1.6, "dash": "dash"})
    figure.add_annotation(
        text=name, x=limit, yref="paper", y=1.0, yanchor="bottom", xanchor="center", showarrow=False,
        font={"color": look.BAD},
    )  # fmt: skip


def _lay_out(figure: go.Figure, picture: Picture, choices: Choices, unit: str) -> None:
    """Axes with their units. The upright one by name: the strip has its own, which has neither title nor scale."""
    look.framed(figure, height=560, hovermode="closest", dragmode="select", clickmode="event+select")
    figure.update_xaxes(title=f"peak memory, {unit}")
    figure.update_layout(
        yaxis={
            "title": y_title(choices.y, picture.points.unit),
            "tickformat": ".0%" if choices.y == "mfu" else "~s",
            "type": "log" if choices.log else "linear",
        }
    )
