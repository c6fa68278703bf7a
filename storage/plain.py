"""Values as both databases take them: standard JSON, text without NUL, finite numbers.

PostgreSQL refuses NaN and NUL in JSON, and neither database takes a lone surrogate. A run's result must not be lost for
such a thing, so what cannot be kept becomes null or U+FFFD at this border.
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Mapping
from datetime import date
from typing import Any

LARGEST = 2**63 - 1


def plain_text(text: str) -> str:
    """The text with NUL and lone surrogates replaced."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")


def plain_real(value: float | None) -> float | None:
    """A finite number, or None for NaN, infinity and what no double holds."""
    try:
        return float(value) if value is not None and math.isfinite(value) else None
    except OverflowError:
        return None


def plain_integer(value: float | None) -> int | None:
    """A whole number of 64 bits, or None for what is none."""
    if value is None or plain_real(value) is None:
        return None
    whole = int(value)
    return whole if abs(whole) <= LARGEST else None


def plain_json(value: Any) -> Any:
    """The value as standard JSON. What JSON does not know becomes its text."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, Mapping):
        return {plain_text(str(key)): plain_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_json(item) for item in value]
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return plain_real(float(value))
    if isinstance(value, bytes):
        return plain_text(value.decode("utf-8", "replace"))
    return value.isoformat() if isinstance(value, date) else plain_text(str(value))


def to_json(value: Any) -> str:
    """Standard JSON text (what the engines serialise with)."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
