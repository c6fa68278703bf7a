"""What a point says when it is touched: the whole configuration and the metrics. Pure.

What is the same for all trials stands once in the template; a point carries only its own values.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, SupportsInt

import numpy as np

from tuner.cli import words
from ui.plain import chart_text
from ui.points import DERIVED, Floats, Points

OWN = ("number", "throughput", "interval", "peak", "predicted", "seconds", "outcome")
"""Columns of a point's data before its knobs."""
WIDE = 56


@dataclass(frozen=True, kw_only=True)
class Hover:
    """Texts of a study's points; ``throughput`` in units per second as it is reported."""

    points: Points
    throughput: Floats
    intervals: Mapping[int, tuple[float, float]]

    @cached_property
    def knobs(self) -> tuple[str, ...]:
        """Those that differ between trials, accumulation included."""
        return (*self.points.searched, *(name for name in DERIVED if len(self.points.values(name)) > 1))

    def rows(self, ats: Iterable[SupportsInt]) -> list[list[Any]]:
        """The data of these points: their number first."""
        return [self._row(int(at)) for at in ats]

    def template(self) -> str:
        """How plotly writes a point's data."""
        lines = [
            "<b>trial %{customdata[0]}</b>, %{customdata[6]}",
            "<b>%{customdata[1]}</b> %{customdata[2]}",
            "peak %{customdata[3]}%{customdata[4]}",
            "",
            *(f"{chart_text(name)}: <b>%{{customdata[{at}]}}</b>" for at, name in enumerate(self.knobs, len(OWN))),
            *self._the_same(),
            "%{customdata[5]} of device time",
        ]
        return "<br>".join(lines) + "<extra></extra>"

    def _row(self, at: int) -> list[Any]:
        points = self.points
        config = points.configs[at]
        bounds = self.intervals.get(points.numbers[at])
        predicted = points.predicted[at]
        return [
            points.numbers[at],
            words.rate(_known(self.throughput[at]), points.unit),
            words.interval(bounds),
            words.size(_known(points.peak[at])),
            f", predicted {words.size(predicted)}" if np.isfinite(predicted) else "",
            words.duration(_known(points.seconds[at])),
            chart_text(_outcome(points, at)),
            *(chart_text(words.value(config.get(name))) for name in self.knobs),
        ]

    def _the_same(self) -> list[str]:
        config = self.points.configs[0] if self.points.configs else {}
        same = [f"{name} {words.value(value)}" for name, value in config.items() if name not in self.knobs]
        return [chart_text(line) for line in textwrap.wrap(", ".join(same), WIDE)]


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _outcome(points: Points, at: int) -> str:
    outcome, cause = points.outcomes[at], points.causes[at]
    said = "running" if outcome is None else outcome.replace("_", " ")
    if points.confirmed[at]:
        said = "confirmed"
    return f"{said} ({cause})" if cause else said
