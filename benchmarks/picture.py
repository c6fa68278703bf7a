"""Draws the front of a stored study as an SVG file: throughput against peak memory, every measured trial.

python -m benchmarks.picture STUDY FILE.svg
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 400, 76, 24, 40, 52
INK, FAINT, BLUE, ORANGE, GREY = "#222222", "#d9d9d9", "#0072b2", "#d55e00", "#8a8a8a"  # Okabe and Ito's safe colours
GIB = 2**30


class Axis:
    """A linear axis from 0 to a round number above the largest value."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.step = _round_step(max(values) * 1.08 / 5)
        self.top = self.step * int(max(values) * 1.08 / self.step + 1)
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


def draw(title: str, trials: Sequence[dict[str, Any]], front: Sequence[int], baseline: int, best: int | None) -> str:
    """The picture."""
    x = Axis([trial["peak_memory_bytes"] / GIB for trial in trials], LEFT, WIDTH - RIGHT)
    y = Axis([trial["throughput_interval"][1] for trial in trials], HEIGHT - BOTTOM, TOP)
    parts = [*_frame(title, x, y, trials[0]["throughput_unit"].replace("_", " "))]
    line = sorted((t for t in trials if t["number"] in front), key=lambda trial: trial["peak_memory_bytes"])
    points = " ".join(f"{x.at(t['peak_memory_bytes'] / GIB):.1f},{y.at(t['throughput']):.1f}" for t in line)
    parts.append(f'<polyline points="{points}" fill="none" stroke="{BLUE}" stroke-width="1.5"/>')
    for trial in trials:
        parts += _point(trial, x, y, trial["number"] in front, trial["number"] == baseline, trial["number"] == best)
    return "\n".join([*parts, "</svg>", ""])


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


def _point(trial: dict[str, Any], x: Axis, y: Axis, on_front: bool, is_baseline: bool, is_best: bool) -> list[str]:
    left, top = x.at(trial["peak_memory_bytes"] / GIB), y.at(trial["throughput"])
    low, high = map(y.at, trial["throughput_interval"])
    colour = ORANGE if is_baseline or is_best else BLUE if on_front else GREY
    parts = [
        f'<path d="M{left:.1f} {low:.1f}V{high:.1f}" stroke="{colour}" stroke-opacity="0.45"/>',
        f'<circle cx="{left:.1f}" cy="{top:.1f}" r="{5 if is_baseline or is_best else 3.5}" fill="{colour}"/>',
    ]
    words = "baseline" if is_baseline else "winner" if is_best else ""
    return [*parts, _text(left + 9, top - 6, words, "start", ORANGE)] if words else parts


def main(study: str, file: str) -> None:
    """Reads the study from the store and writes the picture."""
    from storage import runs, studies, trials
    from storage.database import Database
    from tuner import spec as specs
    from tuner.answer.summary import StudyView, trial_json
    from tuner.settings import Settings

    database = Database.open(Settings.from_environment().store_url)
    found = studies.find(database, study)
    assert found is not None, study
    rows = trials.list_of(database, found.id)
    view = StudyView(
        study=found, trials=rows, runs=runs.list_of(database, study_id=found.id), spec=specs.from_mapping(found.spec)
    )
    measured = [trial_json(each, view) for each in view.ended if each.outcome == "completed"]
    best = next((each.number for each in view.ended if each.id == view.answer.best), None)
    title = f"{study}: {len(measured)} measured trials on {found.device}, 95 % intervals"
    Path(file).write_text(draw(title, measured, [t.number for t in view.front], 0, best), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
