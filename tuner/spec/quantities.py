"""Sizes, times and shares as people write them: ``40GiB``, ``1h30m``, ``92%``. Pure."""

from __future__ import annotations

import math
import re
from typing import Any

from tuner.spec.model import MemoryLimit

SIZES = {
    "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
UNITS = "%, B, KiB, MiB, GiB, TiB, KB, MB, GB or TB"
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SMALLEST_LIMIT_BYTES = 16 * 2**20
LONGEST_SECONDS = 366 * 86400.0

_NUMBER_AND_UNIT = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z%]*)", re.ASCII)
_TIME_PARTS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(sec|s|min|m|h|d)", re.ASCII)


class QuantityError(ValueError):
    """A quantity nobody can read: what is wrong, and what to write."""

    def __init__(self, reason: str, fix: str) -> None:
        self.reason = reason
        self.fix = fix
        super().__init__(f"{reason}. {fix}")


def parse_memory(value: Any, *, smallest_bytes: int = SMALLEST_LIMIT_BYTES) -> MemoryLimit:
    """``92%``, ``40GiB`` (2^30), ``40GB`` (10^9) or whole bytes, as a limit.

    Args:
        value: As written.
        smallest_bytes: Sizes below are refused; the default is the least a training may be limited to.

    Raises:
        QuantityError: Not a size or a share, a share outside 0 to 100 %, or less than the smallest size.
    """
    fix = "Write a share of the device such as 92%, or a size such as 40GiB"
    number, unit = _number_and_unit(value, fix)
    if unit == "%":
        return MemoryLimit(share=_share(number, fix))
    if unit.upper() not in SIZES and unit:
        raise QuantityError(f"{value!r} has the unknown unit {unit!r}", f"Use {UNITS}")
    size_bytes = int(number * SIZES[unit.upper() or "B"])
    if size_bytes < smallest_bytes:
        raise QuantityError(f"{value!r} means {size_bytes} bytes, too little for any training", fix)
    return MemoryLimit(size_bytes=size_bytes)


def parse_seconds(value: Any) -> float:
    """``90s``, ``20m``, ``1h30m`` or ``2d`` in seconds; always above 0.

    Raises:
        QuantityError: A bare number (of what?), not a time, zero, or more than a year.
    """
    fix = "Write a time with its unit, such as 90s, 20m or 1h30m"
    if isinstance(value, bool) or not isinstance(value, str):
        raise QuantityError(f"{_shown(value)} is not a time with a unit", fix)
    text = value.strip()
    parts = _TIME_PARTS.findall(text)
    if not parts or _TIME_PARTS.sub("", text).strip():
        raise QuantityError(f"{_shown(value)} is not a time", fix)
    seconds = sum(float(number) * SECONDS[unit[0]] for number, unit in parts)
    if not 0 < seconds <= LONGEST_SECONDS:
        raise QuantityError(f"{_shown(value)} is {'no time at all' if not seconds else 'more than a year'}", fix)
    return seconds


def parse_share(value: Any) -> float:
    """``1%`` as 0.01. ``0%`` is legal.

    Raises:
        QuantityError: Not written with a percent sign, or above 100 %.
    """
    fix = "Write it with a percent sign, such as 1%"
    number, unit = _number_and_unit(value, fix)
    if unit != "%":
        raise QuantityError(f"{_shown(value)} is not a percentage", fix)
    return _share(number, fix) if number else 0.0


def show_memory(limit: MemoryLimit) -> str:
    """The limit as a person writes it; :func:`parse_memory` reads it back."""
    if limit.size_bytes is None:
        return f"{100 * (limit.share if limit.share is not None else 1.0):.10g}%"
    for unit in ("TiB", "GiB", "MiB"):
        if limit.size_bytes % SIZES[unit.upper()] == 0:
            return f"{limit.size_bytes // SIZES[unit.upper()]}{unit}"
    return f"{limit.size_bytes}B"


def show_seconds(seconds: float) -> str:
    """The time as a person writes it; :func:`parse_seconds` reads it back."""
    for unit in ("h", "m"):
        if seconds % SECONDS[unit] == 0:
            return f"{seconds / SECONDS[unit]:.10g}{unit}"
    return f"{seconds:.10g}s"


def _number_and_unit(value: Any, fix: str) -> tuple[float, str]:
    if isinstance(value, int) and not isinstance(value, bool):
        return _whole(value, fix), ""
    match = _NUMBER_AND_UNIT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise QuantityError(f"{_shown(value)} is neither a size nor a share", fix)
    return float(match.group(1)), match.group(2)


def _whole(value: int, fix: str) -> float:
    if not 0 <= value < 10**18:
        raise QuantityError(f"{_shown(value)} bytes is out of range", fix)
    return float(value)


def _share(percent: float, fix: str) -> float:
    if not 0 < percent <= 100 or not math.isfinite(percent):
        raise QuantityError(f"{percent:g}% is not between 0% and 100%", fix)
    return percent / 100


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
