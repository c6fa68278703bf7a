"""Draws regret over device-seconds as an SVG file: the median of every strategy, over all tables and seeds. Pure.

Device-seconds are told as a share of running the whole table, so that tables of different cost can stand together.
The picture has no background and colours that are readable on white and on black.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from benchmarks.replay.report import OURS, Played
from benchmarks.replay.result import Result
from benchmarks.replay.strategies import Strategy

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 440, 64, 230, 40, 52
INK, FAINT = "#808080", "#80808040"
COLOURS = ("#d55e00", "#0095d9", "#00a57a", "#c871a8", "#b39200", "#7f8ff0", "#e3879e", "#5aa9a4")
LOWEST_SHARE, POINTS = 0.01, 120
MOST_REGRET = 0.5
SHOWN = (("ours", 1), ("optuna", 4), ("peer", 3))
"""Strategies drawn: ours and the best of each kind (without ablations and those given the best knobs)."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Line:
    """One strategy's curve.

    Attributes:
        name: Of the strategy.
        shares: Device-seconds over the whole table's, shape (points,).
        regret: Median regret after them, shape (points,).
    """

    name: str
    shares: Floats
    regret: Floats


def draw(played: Played) -> str:
    """The picture."""
    lines = [_line(each, played) for each in _shown(played)]
    parts = [*_frame(len(played.tables))]
    for place, line in reversed(list(enumerate(lines))):  # ours, the first, on top of the others
        parts += _drawn(line, COLOURS[place % len(COLOURS)], bold=line.name == OURS)
    parts += _legend([line.name for line in lines])
    return "\n".join([*parts, "</svg>", ""])


def _shown(played: Played) -> list[Strategy]:
    ordered = sorted(played.strategies, key=lambda each: played.score(each.name).seconds)
    return [each for kind, most in SHOWN for each in [one for one in ordered if one.kind == kind][:most]]


def _line(strategy: Strategy, played: Played) -> Line:
    shares = np.geomspace(LOWEST_SHARE, 1.0, POINTS)
    totals = {table.name: table.seconds for table in played.tables}
    curves = [
        _at(result, shares * totals[name]) for name, results in played.of(strategy.name).items() for result in results
    ]
    return Line(name=strategy.name, shares=shares, regret=np.median(curves, axis=0))


def _at(result: Result, seconds: Floats) -> Floats:
    """Regret of the best row run so far at these times; 1 before the first."""
    times = np.array([at for at, _ in result.curve])
    regret = np.array([1.0, *(value for _, value in result.curve)])
    found: Floats = regret[np.searchsorted(times, seconds, side="right")]
    return found


def _x(share: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * float(np.log(share / LOWEST_SHARE) / np.log(1 / LOWEST_SHARE))


def _y(regret: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(regret, MOST_REGRET) / MOST_REGRET)


def _frame(tables: int) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12" role="img">'
    )
    over = "1 table" if tables == 1 else f"{tables} tables"
    title = f"Throughput given away by the best configuration run so far (median, {over})"
    yield f"<title>{escape(title)}</title>"
    yield _text(LEFT, 22, title, size=14)
    for regret in np.arange(0.0, MOST_REGRET + 0.01, 0.1):
        yield f'<path d="M{LEFT} {_y(regret):.1f}H{WIDTH - RIGHT}" stroke="{FAINT}"/>'
        yield _text(LEFT - 8, _y(regret) + 4, f"{regret:.0%}", anchor="end")
    for share in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0):
        yield f'<path d="M{_x(share):.1f} {HEIGHT - BOTTOM}V{HEIGHT - BOTTOM + 4}" stroke="{INK}"/>'
        yield _text(_x(share), HEIGHT - BOTTOM + 18, f"{share:.0%}", anchor="middle")
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield _text(middle, HEIGHT - 10, "device-seconds, share of running the whole table", anchor="middle")


def _drawn(line: Line, colour: str, *, bold: bool) -> Iterator[str]:
    """A staircase; what lies above the picture's regret begins where it comes into view."""
    started = line.regret <= MOST_REGRET
    if not started.any():
        return
    shares, regret = line.shares[started], line.regret[started]
    steps = [f"M{_x(shares[0]):.1f} {_y(regret[0]):.1f}"]
    steps += [f"H{_x(share):.1f}V{_y(value):.1f}" for share, value in zip(shares[1:], regret[1:], strict=True)]
    yield (
        f'<path d="{"".join(steps)}" fill="none" stroke="{colour}" stroke-width="{3.5 if bold else 1.6}" '
        f'stroke-linejoin="round"><title>{escape(line.name)}</title></path>'
    )


def _legend(names: Sequence[str]) -> Iterator[str]:
    left = WIDTH - RIGHT + 20
    for place, name in enumerate(names):
        y, colour = TOP + 14 + 22 * place, COLOURS[place % len(COLOURS)]
        yield f'<path d="M{left} {y - 4}h22" stroke="{colour}" stroke-width="{3.5 if name == OURS else 2}"/>'
        yield _text(left + 30, y, name, weight="bold" if name == OURS else "normal")


def _text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 12, weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" '
        f'fill="{INK}">{escape(words)}</text>'
    )
