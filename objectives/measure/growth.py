"""How memory grows over a long run: flat, saturating, growing, in steps, or nobody can tell. Pure: plain numbers in.

A rate is only stated with an interval, and only where the curve's own halves agree on what it does. Growth in few large
steps (an allocator that takes a segment now and then, a longer batch than ever before) has no rate: it is told, and not
extrapolated. A reading follows the one before, so errors are paid for by the correlation of the residuals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Literal

from objectives.measure.series import student_t

Kind = Literal["flat", "saturates", "grows", "steps", "cannot_tell"]
Interval = tuple[float, float]

BLOCKS, FEWEST_POINTS = 24, 30
"""Readings are put together into so many blocks; with fewer readings nothing is said."""
WARM_UP_SHARE = 0.1
"""Of the run's time, left out at its start: first batches, caches, the optimizer's state."""
LEAST_SHARE, LEAST_BYTES = 0.002, 64 * 1024
"""Growth over the whole run below this share of the level, or below so many bytes, is none."""
LEAST_RELATIVE = 0.02
"""No rate is known better than this: the pace of the updates themselves varies."""
FLAT_SHARE = 0.01
"""Flat is what surely grows by less than this share of the level over the run."""
LARGEST_CORRELATION = 0.9
FEWEST_STEPS_OF_A_RAMP = 12
"""A staircase with so many steps, evenly spread, is a ramp."""
STEPS_SHARE = 0.6
"""Growth is in steps when few jumps make up so much of it."""
JUMP_FACTOR, STEP_READINGS = 5.0, 6
"""A jump is so many times the scatter of so many readings before and behind it."""
CLEAR_FACTOR = 6.0
"""Growth is clear when it is so many times the scatter around what is fitted; else nobody can tell."""


@dataclass(frozen=True, kw_only=True)
class Growth:
    """What a curve does.

    Attributes:
        kind: ``flat``; ``saturates`` (it grew, ever slower); ``grows`` (a steady rate); ``steps``; ``cannot_tell``.
        bytes_per_hour: Its rate from here on: the best guess; None where it has none.
        interval: 95 % of it; of a saturating curve from nothing to what it still does. None without a rate.
        level_bytes: Where it stands.
        steps: Number of jumps; 0 unless the kind is ``steps``.
        reason: One sentence for people.
    """

    kind: Kind
    bytes_per_hour: float | None = None
    interval: Interval | None = None
    level_bytes: float = 0.0
    steps: int = 0
    reason: str = ""

    @property
    def extrapolates(self) -> bool:
        """Whether anything is said about later."""
        return self.interval is not None


@dataclass(frozen=True, kw_only=True)
class Line:
    """A fitted rate in bytes per second, with its 95 % interval, and the scatter around it in bytes."""

    slope: float
    low: float
    high: float
    scatter: float


def fit_growth(seconds: Sequence[float], values: Sequence[float]) -> Growth:
    """Says what a curve does.

    Args:
        seconds: Time of each reading, ascending.
        values: Bytes; as many.
    """
    times, levels = _after_warm_up(seconds, values)
    level = median(levels[-max(len(levels) // 10, 1) :]) if levels else 0.0
    if len(levels) < FEWEST_POINTS or times[-1] <= times[0]:
        return Growth(kind="cannot_tell", level_bytes=level, reason=f"{len(levels)} readings are too few to tell")
    least = max(LEAST_SHARE * abs(level), LEAST_BYTES)
    jumps = _jumps(levels, least)
    if jumps:
        return Growth(
            kind="steps", level_bytes=level, steps=len(jumps),
            reason=f"it grew in {len(jumps)} jump{'s' if len(jumps) > 1 else ''}, the last "
            f"{times[-1] - times[jumps[-1]]:.0f} s before the end: a rate cannot be told from so few",
        )  # fmt: skip
    return _of_lines(*_blocks(times, levels), level=level, least=least)


def _after_warm_up(seconds: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    if not seconds:
        return [], []
    start = seconds[0] + WARM_UP_SHARE * (seconds[-1] - seconds[0])
    kept = [(time, float(value)) for time, value in zip(seconds, values, strict=True) if time >= start]
    return [time for time, _ in kept], [value for _, value in kept]


def _jumps(levels: Sequence[float], least: float) -> list[int]:
    """Places of the few jumps that make up the growth; empty where it is not in steps.

    A jump must last: what falls back with the next batch is noise.
    """
    rise = median(levels[-STEP_READINGS:]) - median(levels[:STEP_READINGS])
    scatter = median(math.sqrt(_variance(stretch)) for stretch in _stretches(levels))
    if rise < max(least, CLEAR_FACTOR * scatter):
        return []
    heights = {
        place: height
        for place in range(STEP_READINGS, len(levels) - STEP_READINGS)
        if (height := _height(levels, place)) > max(0.05 * rise, least / 2)
    }
    tops = [max(group, key=lambda place: heights[place]) for group in _grouped(sorted(heights))]
    if not tops or sum(heights[place] for place in tops) < STEPS_SHARE * rise:
        return []
    if len(tops) >= FEWEST_STEPS_OF_A_RAMP and _evenly(tops, len(levels)):
        return []
    return tops


def _stretches(levels: Sequence[float]) -> list[Sequence[float]]:
    """The readings, so many together as a jump is looked for in."""
    size = 2 * STEP_READINGS
    return [levels[start : start + size] for start in range(0, len(levels) - size + 1, size)] or [levels]


def _height(levels: Sequence[float], place: int) -> float:
    """By how much the readings behind a place stand above those before it; 0 where their own scatter explains it.

    On a ramp without noise the difference is 3.5 times the scatter: less than :data:`JUMP_FACTOR`.
    """
    before, after = levels[place - STEP_READINGS : place], levels[place : place + STEP_READINGS]
    scatter = math.sqrt((_variance(before) + _variance(after)) / 2)
    height = median(after) - median(before)
    return height if height > JUMP_FACTOR * scatter else 0.0


def _variance(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values) / len(values)


def _grouped(places: Sequence[int]) -> list[list[int]]:
    """Neighbouring places together: they see the same jump."""
    groups: list[list[int]] = []
    for place in places:
        if groups and place - groups[-1][-1] <= 2:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def _evenly(places: Sequence[int], length: int) -> bool:
    """Whether the largest gap between two jumps, ends included, is at most three times the mean one."""
    marks = [0, *places, length]
    gaps = [after - before for before, after in pairwise(marks)]
    return max(gaps) <= 3 * fmean(gaps)


def _blocks(times: Sequence[float], levels: Sequence[float]) -> tuple[list[float], list[float]]:
    """Means of equal stretches of readings: peaks of single batches average out."""
    count = min(BLOCKS, len(levels) // 2)
    bounds = [round(part * len(levels) / count) for part in range(count + 1)]
    pairs = list(pairwise(bounds))
    return [fmean(times[a:b]) for a, b in pairs], [fmean(levels[a:b]) for a, b in pairs]


def fit_line(times: Sequence[float], levels: Sequence[float], least: float) -> Line:
    """Least squares; the error pays for the residuals' correlation, and is never below what ``least`` bytes make."""
    count, middle, mean = len(times), fmean(times), fmean(levels)
    spread = sum((time - middle) ** 2 for time in times)
    slope = sum((time - middle) * (level - mean) for time, level in zip(times, levels, strict=True)) / spread
    rest = [level - mean - slope * (time - middle) for time, level in zip(times, levels, strict=True)]
    squares = sum(one**2 for one in rest)
    together = sum(one * other for one, other in pairwise(rest))
    correlation = min(max(together / squares if squares else 0.0, 0.0), LARGEST_CORRELATION)
    inflated = math.sqrt((1 + correlation) / (1 - correlation))
    error = math.sqrt(squares / max(count - 2, 1) / spread) * inflated
    half = max(
        student_t(0.975, max(count - 2, 1)) * error, least / (times[-1] - times[0]) / 2, LEAST_RELATIVE * abs(slope)
    )
    return Line(slope=slope, low=slope - half, high=slope + half, scatter=math.sqrt(squares / count))


def _of_lines(times: list[float], levels: list[float], *, level: float, least: float) -> Growth:
    whole, half = fit_line(times, levels, least), len(times) // 2
    first, last = fit_line(times[:half], levels[:half], least), fit_line(times[half:], levels[half:], least)
    seconds = times[-1] - times[0]
    small = max(FLAT_SHARE * abs(level), 2 * least)
    if max(abs(whole.low), abs(whole.high)) * seconds <= small and not _clear(whole, seconds, least):
        return _stated("flat", whole.slope, _hull(whole, last), level, "it stays where it is")
    if _clear(whole, seconds, least) and last.slope > 0 and _agree(whole, first, last):
        return _stated("grows", whole.slope, _hull(whole, last), level, "it grows at a steady rate")
    later = (min(last.low, 0.0), max(last.high, 0.0))
    rests = max(abs(last.low), abs(last.high)) * seconds <= small and not _clear(last, seconds / 2, least)
    if rests and levels[-1] - levels[0] > 2 * least:
        return _stated("saturates", last.slope, later, level, "it grew and has come to rest")
    if last.high < first.low and last.low > -least / seconds:
        return _stated("saturates", last.slope, later, level, "it grows ever slower")
    return Growth(kind="cannot_tell", level_bytes=level, reason=_why(whole, seconds))


def _agree(*lines: Line) -> bool:
    """Whether the intervals of the rates all overlap."""
    return max(line.low for line in lines) <= min(line.high for line in lines)


def _clear(line: Line, seconds: float, least: float) -> bool:
    """Whether a line's growth stands out of the scatter around it."""
    return line.low > 0 and line.slope * seconds > max(2 * least, CLEAR_FACTOR * line.scatter)


def _why(whole: Line, seconds: float) -> str:
    low, high = whole.low * seconds / 2**20, whole.high * seconds / 2**20
    if whole.low <= 0 <= whole.high:
        return f"between {low:.1f} and {high:.1f} MiB over the run: run it longer"
    return "its first and second half say different things: run it longer"


def _hull(one: Line, other: Line) -> Interval:
    return min(one.low, other.low), max(one.high, other.high)


def _stated(kind: Kind, slope: float, interval: Interval, level: float, reason: str) -> Growth:
    return Growth(
        kind=kind,
        bytes_per_hour=3600 * slope,
        interval=(3600 * interval[0], 3600 * interval[1]),
        level_bytes=level,
        reason=reason,
    )


def is_leak(live: Growth, held: Growth) -> bool:
    """Whether what grows is what the program keeps, not what its allocator holds for it.

    Args:
        live: Bytes in live tensors (CPU: in use of the C library's heap).
        held: Bytes the allocator holds (CPU: resident).
    """
    if live.kind != "grows" or live.bytes_per_hour is None or live.bytes_per_hour <= 0:
        return False
    return held.bytes_per_hour is None or live.bytes_per_hour >= 0.5 * held.bytes_per_hour
