"""Numbers and configurations as people read them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_UNITS = {"tokens_per_second": "tokens/s", "samples_per_second": "samples/s"}
NOTHING = "-"


def size(number_of_bytes: float | None) -> str:
    """Bytes as GiB (TiB from 1024 on, MiB below 0.1 GiB)."""
    if number_of_bytes is None:
        return NOTHING
    if abs(number_of_bytes) >= 2**40:
        return f"{number_of_bytes / 2**40:.2f} TiB"
    if abs(number_of_bytes) < 2**30 / 10:
        return f"{number_of_bytes / 2**20:.0f} MiB"
    gibibytes = number_of_bytes / 2**30
    return f"{gibibytes:.1f} GiB" if abs(gibibytes) >= 100 else f"{gibibytes:.2f} GiB"


def rate(value: float | None, unit: str | None = None) -> str:
    """Units per second in readable thousands: ``3.42k tokens/s``."""
    if value is None:
        return NOTHING
    return f"{number(value)} {_UNITS.get(unit or '', (unit or '').replace('_', ' '))}".rstrip()


def number(value: float) -> str:
    """Three digits with k, M or G: 812, 3.42k, 1.25M."""
    for suffix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= 0.9995 * scale:
            return f"{_three_digits(value / scale)}{suffix}"
    return _three_digits(value)


def _three_digits(value: float) -> str:
    size = abs(value)
    return f"{value:.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def doing(progress: Mapping[str, Any] | None, unit: str | None) -> str:
    """The phase, the steps and the step rate of a run, in one line: ``measure, step 12, 3.42k tokens/s``.

    Args:
        progress: Of :class:`storage.records.RunRecord`; None before its child has said anything.
        unit: Of the study's throughput; None before a trial has measured it.
    """
    if progress is None:
        return "starting"
    steps, speed = progress.get("steps"), progress.get("units_per_second")
    parts = [
        str(progress.get("phase") or "running").replace("_", " "),
        f"step {steps}" if steps else "",
        rate(speed, unit or "units_per_second") if speed is not None else "",
    ]
    return ", ".join(part for part in parts if part)


def interval(bounds: Any, show: Any = number) -> str:
    """``[1.15k, 1.26k]``; empty when there is none."""
    if not bounds or any(bound is None for bound in bounds):
        return ""
    return f"[{show(bounds[0])}, {show(bounds[1])}]"


def times(value: float) -> str:
    """A speed-up: ``1.42x``."""
    return f"{value:.2f}x"


def duration(seconds: float | None) -> str:
    """Seconds as ``12 s``, ``3 min 20 s`` or ``2 h 5 min``."""
    if seconds is None:
        return NOTHING
    whole = round(max(seconds, 0))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def value(item: Any) -> str:
    """A knob's value as it stands in a spec."""
    if isinstance(item, bool):
        return "true" if item else "false"
    return NOTHING if item is None else str(item)


def differing(config: Mapping[str, Any], reference: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs whose value is not the reference's, without what follows from others."""
    return {
        name: given
        for name, given in config.items()
        if name != "accumulation_steps" and (name not in reference or reference[name] != given)
    }


def knobs(config: Mapping[str, Any], reference: Mapping[str, Any]) -> str:
    """What differs from a reference configuration, in one line; empty when nothing does."""
    return ", ".join(f"{name} {value(given)}" for name, given in differing(config, reference).items())


def figure(item: Mapping[str, Any]) -> str:
    """A figure of the doctor (:data:`tuner.documents.FIGURE`) with its unit and interval."""
    text = _measured(item["value"], item["unit"])
    bounds = item["interval"]
    return (
        text if not bounds else f"{text} [{_measured(bounds[0], item['unit'])}, {_measured(bounds[1], item['unit'])}]"
    )


def _measured(given: Any, unit: str) -> str:
    if given is None or isinstance(given, str):
        return NOTHING if given is None else given
    if unit in ("bytes", "bytes_per_hour"):
        return size(given) + (" an hour" if unit == "bytes_per_hour" else "")
    if unit == "share":
        return f"{100 * given:.3g} %"
    if unit == "seconds":
        return f"{1000 * given:.3g} ms" if abs(given) < 1 else duration(given)
    if unit == "ratio":
        return times(given)
    if unit == "relative" or (isinstance(given, float) and abs(given) < 0.01):
        return f"{given:.2g}"
    return rate(given, unit) if isinstance(given, float) or unit.endswith("_per_second") else f"{given} {unit}".rstrip()
