"""The front as SVG: every measured trial, the front's line, the limit, baseline and winner. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.cli import words
from tuner.report.html import Html, element, joined

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 74, 18, 18, 52
TICKS = 5
GIB = 2.0**30


@dataclass(frozen=True, kw_only=True)
class Point:
    """A measured trial.

    Attributes:
        throughput: Units per second.
        peak_bytes: Its peak memory.
        on_front: Whether it lies on the front.
        mark: ``baseline``, ``winner`` or empty.
        text: What it shows when pointed at.
    """

    throughput: float
    peak_bytes: int
    on_front: bool
    mark: str
    text: str


def front_chart(points: Sequence[Point], limit_bytes: int | None, unit: str) -> Html:
    """The picture; an empty one says that nothing was measured."""
    if not points:
        return element("p", "No configuration was measured.")
    across, up = _axes(points, limit_bytes)
    parts = [*_grid(across, up, unit), *_limit(across, limit_bytes), _line(points, across, up)]
    parts += [_dot(point, across, up) for point in sorted(points, key=lambda each: (bool(each.mark), each.on_front))]
    told = f"Throughput against peak memory of {len(points)} trials"
    return element(
        "svg", element("title", told), *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=told
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Axis:
    """From values to places: ``low`` lies at ``start``, ``high`` at ``end`` (in the picture's units)."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Where a value lies."""
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 1)

    @property
    def ticks(self) -> list[float]:
        """Round values inside."""
        step = round_step((self.high - self.low) / TICKS)
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def round_step(rough: float) -> float:
    """The smallest of 1, 2, 2.5 or 5 times a power of ten that is not below."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))


def _axes(points: Sequence[Point], limit_bytes: int | None) -> tuple[Axis, Axis]:
    peaks = [each.peak_bytes / GIB for each in points]
    most = max(peaks)
    if limit_bytes is not None and limit_bytes / GIB < 4 * most:
        most = max(most, limit_bytes / GIB)
    rates = [each.throughput for each in points]
    across = Axis(low=0.0, high=max(most, 1e-6) * 1.05, start=LEFT, end=WIDTH - RIGHT)
    return across, Axis(low=0.0, high=max(*rates, 1e-9) * 1.08, start=HEIGHT - BOTTOM, end=TOP)


def _grid(across: Axis, up: Axis, unit: str) -> list[Html]:
    parts = []
    for value in up.ticks:
        y = up.at(value)
        parts.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
        parts.append(_text(words.number(value) if value else "0", LEFT - 8, y + 4, "end"))
    for value in across.ticks:
        parts.append(_text(f"{value:g}", across.at(value), HEIGHT - BOTTOM + 18, "middle"))
    parts.append(_text("peak memory, GiB", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "middle"))
    turned = f"rotate(-90 16 {HEIGHT / 2})"
    parts.append(element("text", unit, x=16, y=HEIGHT / 2, text_anchor="middle", transform=turned))
    return parts


def _limit(across: Axis, limit_bytes: int | None) -> list[Html]:
    if limit_bytes is None or not across.low <= limit_bytes / GIB <= across.high:
        return []
    x = across.at(limit_bytes / GIB)
    told = f"limit {words.size(limit_bytes)}"
    return [
        element("line", x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM, class_="limit"),
        _text(told, x - 6, TOP + 12, "end"),
    ]


def _line(points: Sequence[Point], across: Axis, up: Axis) -> Html:
    """The front as steps: a memory budget buys the throughput of the last point below it."""
    front = sorted((each for each in points if each.on_front), key=lambda each: each.peak_bytes)
    corners: list[str] = []
    before = None
    for each in front:
        x, y = across.at(each.peak_bytes / GIB), up.at(each.throughput)
        corners += [] if before is None else [f"{x},{before}"]
        corners.append(f"{x},{y}")
        before = y
    return element("polyline", points=" ".join(corners), class_="front")


def _dot(point: Point, across: Axis, up: Axis) -> Html:
    x, y = across.at(point.peak_bytes / GIB), up.at(point.throughput)
    kind = point.mark or ("on-front" if point.on_front else "other")
    dot = element("circle", element("title", point.text), cx=x, cy=y, r=6 if point.mark else 4, class_=kind)
    if not point.mark:
        return dot
    inside = x < WIDTH - 140
    return joined([dot, _text(point.mark, x + 10 if inside else x - 10, y - 8, "start" if inside else "end")])


def _text(text: str, x: float, y: float, anchor: str) -> Html:
    return element("text", text, x=round(x, 1), y=round(y, 1), text_anchor=anchor)
