"""Fewer points where many lie on each other: what a browser draws of ten thousand trials. Pure.

Measured in Chromium without a GPU: 1,000 points are drawn in 1.1 s as SVG, 10,000 in 2.5 s; WebGL needs 1.7 to 2.4 s
for either, most of it to begin. So a picture of so many trials is thinned until SVG draws it at once.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from ui.points import Floats, Points

MOST = 1000
"""Points that are drawn without any being left out."""
GRIDS = ((160, 100), (110, 70), (80, 50), (56, 35), (40, 25), (28, 18))
"""Cells across and up, finest first: of trials in one cell that look alike, one is drawn."""
STRIP_CELLS, STRIP_DEEP = 160, 3


def thinned(
    points: Points, y: Floats, always: Collection[int], knobs: tuple[str | None, str | None]
) -> NDArray[np.bool_]:
    """Which measured trials are drawn: all, or of very many those that look different.

    Args:
        points: The trials.
        y: Their upright coordinates; NaN where there is none.
        always: Numbers of trials that are never left out.
        knobs: What colour and shape stand for; None for nothing.
    """
    drawn = points.measured() & np.isfinite(y)
    if int(drawn.sum()) <= MOST:
        return drawn
    ats = np.flatnonzero(drawn)
    looks = [tuple(points.configs[at].get(name) for name in knobs if name) for at in ats]
    kept = drawn
    for across, up in GRIDS:
        columns, rows = cells(points.peak[ats], across), cells(y[ats], up)
        kept = _first_of_each(ats, list(zip(columns, rows, looks, strict=True)), len(points))
        if int(kept.sum()) <= MOST:
            break
    kept[[points.at[each] for each in always if each in points.at]] = True
    return kept & drawn


def strip_thinned(ats: list[int], x: Floats) -> list[int]:
    """Of trials on one line, at most a few a cell."""
    if len(ats) <= STRIP_CELLS * STRIP_DEEP:
        return ats
    columns = cells(x[ats], STRIP_CELLS)
    seen: dict[int, int] = {}
    kept = []
    for at, column in zip(ats, columns.tolist(), strict=True):
        seen[column] = seen.get(column, 0) + 1
        if seen[column] <= STRIP_DEEP:
            kept.append(at)
    return kept


def cells(values: Floats, many: int) -> NDArray[np.int64]:
    """The cell of each value when their span is cut into so many."""
    low, high = float(np.min(values)), float(np.max(values))
    return ((values - low) / ((high - low) or 1.0) * many).astype(np.int64)


def _first_of_each(ats: NDArray[np.int64], looks: list[tuple[object, ...]], length: int) -> NDArray[np.bool_]:
    kept = np.zeros(length, dtype=bool)
    kept[list({look: at for at, look in zip(reversed(ats), reversed(looks), strict=True)}.values())] = True
    return kept
