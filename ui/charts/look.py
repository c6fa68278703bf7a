"""What all figures share: colours that everybody can tell apart, shapes beside them, units, a quiet frame. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

GIB, MIB = 2**30, 2**20
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6BB1", "#8A8F98")
"""Okabe and Ito's, the black left out (it is not seen on a dark screen), two more behind them."""
SHAPES = ("circle", "square", "diamond", "triangle-up", "cross", "pentagon", "star", "hexagon")
ORDERED = ("#FDE725", "#B5DE2B", "#6CCD5A", "#35B779", "#1F9E89", "#26828E", "#31688E", "#443983")
"""Viridis from light to dark, for numbers in order."""
GREY, FAINT = "#8A8F98", "rgba(138,143,152,0.6)"
WINNER, BASELINE, KNEE, BAD = "#D55E00", "#8A8F98", "#CC79A7", "#C9434F"
UNITS = {"tokens_per_second": "tokens/s", "samples_per_second": "samples/s"}


def unit_words(unit: str | None) -> str:
    """``tokens/s`` or ``samples/s``."""
    return UNITS.get(unit or "", "units/s")


def memory_scale(largest_bytes: float) -> tuple[float, str]:
    """Bytes of one step of a memory axis, and its unit: GiB, or MiB where all is small."""
    return (float(MIB), "MiB") if largest_bytes < GIB / 2 else (float(GIB), "GiB")


def is_ordered(values: Sequence[Any]) -> bool:
    """Whether values are numbers with an order (booleans are not)."""
    return all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)


def colours_for(values: Sequence[Any]) -> dict[Any, str]:
    """A colour by value: steps of one scale for numbers, different hues for words."""
    if is_ordered(values) and len(values) > 2:
        last = max(len(values) - 1, 1)
        return {value: ORDERED[round(at * (len(ORDERED) - 1) / last)] for at, value in enumerate(values)}
    return {value: COLOURS[at % len(COLOURS)] for at, value in enumerate(values)}


def shapes_for(values: Sequence[Any]) -> dict[Any, str]:
    """A shape by value."""
    return {value: SHAPES[at % len(SHAPES)] for at, value in enumerate(values)}


def framed(figure: go.Figure, *, height: int, **layout: Any) -> go.Figure:
    """The figure with the common margins and fonts."""
    figure.update_layout(
        height=height,
        margin={"l": 8, "r": 8, "t": 28, "b": 8},
        hoverlabel={"align": "left", "font": {"size": 12}},
        legend={"orientation": "h", "y": -62 / (height - 60), "yanchor": "top", "x": 0, "font": {"size": 12}},
        uirevision="kept",
        **layout,
    )
    figure.update_xaxes(automargin=True, zeroline=False)
    figure.update_yaxes(automargin=True, zeroline=False)
    return figure
