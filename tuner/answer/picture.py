"""The front as an SVG picture: throughput against peak memory, every measured trial. Text in, text out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 400, 76, 24, 40, 52
INK, FAINT, BLUE, ORANGE, GREY = "#222222", "#d9d9d9", "#0072b2", "#d55e00", "#8a8a8a"  # Okabe and Ito's safe colours
GIB = 2**30

Trial = Mapping[str, Any]
"""A trial of a study's document."""


class Axis:
    """A linear axis from 0 to a round number above the largest value."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        most = max(values, default=1.0) or 1.0
        self.step = _round_step(most * 1.08 / 5)
        self.top = self.step * int(most * 1.08 / self.step + 1)
        self._start, self._end = start, end

    def at(self, value: float) -> float:
        """Pixels of a value."""
        return self._start + (self._end - self._start) * value / self.top

    def ticks(self) -> list[float]:
        """Round values along it."""
        return [self.step * index for index in range(int(self.top / self.step) + 1)]


def _round_step(wanted: float) -> float:
    scale = 10.0 ** (len(f"{int(wanted)}") - 1) if wanted >= 1 else 0.01
    return next(scale * factor for factor in (1, 2, 5, 10, 20, 50, 100) if scale * factor >= wanted)


def draw(title: str, trials: Sequence[Trial], front: Sequence[int], baseline: int | None, best: int | None) -> str:
    """The picture.

    Args:
        title: Above it.
        trials: Measured ones; those without throughput or peak are left out.
        front: Numbers of the front's trials.
        baseline: Number of the baseline; None for none.
        best: Number of the winner; None for none.
    """
    shown = [each for each in trials if each["throughput"] is not None and each["peak_memory_bytes"] is not None]
    x = Axis([each["peak_memory_bytes"] / GIB for each in shown], LEFT, WIDTH - RIGHT)
    y = Axis([_bounds(each)[1] for each in shown], HEIGHT - BOTTOM, TOP)
    unit = next((str(each["throughput_unit"]) for each in shown if each["throughput_unit"]), "units_per_second")
    line = sorted((each for each in shown if each["number"] in front), key=lambda each: each["peak_memory_bytes"])
    points = " ".join(f"{x.at(each['peak_memory_bytes'] / GIB):.1f},{y.at(each['throughput']):.1f}" for each in line)
    parts = [*_frame(title, x, y, unit.replace("_", " "))]
    parts.append(f'<polyline points="{points}" fill="none" stroke="{BLUE}" stroke-width="1.5"/>')
    for each in shown:
        number = each["number"]
        parts += _point(each, x, y, number in front, number == baseline, number == best)
    return "\n".join([*parts, "</svg>", ""])


def _bounds(trial: Trial) -> tuple[float, float]:
    interval = trial["throughput_interval"]
    return (trial["throughput"], trial["throughput"]) if interval is None else (interval[0], interval[1])


def _frame(title: str, x: Axis, y: Axis, unit: str) -> list[str]:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="14" fill="{INK}">{escape(title)}</text>',
    ]
    for value in y.ticks():
        parts.append(f'<path d="M{LEFT} {y.at(value):.1f}H{WIDTH - RIGHT}" stroke="{FAINT}"/>')
        parts.append(_text(LEFT - 8, y.at(value) + 4, f"{value:,.0f}", "end"))
    for value in x.ticks():
        parts.append(_text(x.at(value), HEIGHT - BOTTOM + 18, f"{value:.2f}".rstrip("0").rstrip("."), "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "peak memory, GiB", "middle"))
    parts.append(f'<g transform="rotate(-90)">{_text(-HEIGHT / 2, 16, unit, "middle")}</g>')
    return parts


def _text(x: float, y: float, words: str, anchor: str, colour: str = INK) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'


def _point(trial: Trial, x: Axis, y: Axis, on_front: bool, is_baseline: bool, is_best: bool) -> list[str]:
    left, top = x.at(trial["peak_memory_bytes"] / GIB), y.at(trial["throughput"])
    low, high = map(y.at, _bounds(trial))
    colour = ORANGE if is_baseline or is_best else BLUE if on_front else GREY
    parts = [
        f'<path d="M{left:.1f} {low:.1f}V{high:.1f}" stroke="{colour}" stroke-opacity="0.45"/>',
        f'<circle cx="{left:.1f}" cy="{top:.1f}" r="{5 if is_baseline or is_best else 3.5}" fill="{colour}"/>',
    ]
    words = "baseline" if is_baseline else "winner" if is_best else ""
    return [*parts, _text(left + 9, top - 6, words, "start", ORANGE)] if words else parts
