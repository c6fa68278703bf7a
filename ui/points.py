"""A study's trials in columns: what charts, filters and counts are made from. Pure."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
DERIVED = ("accumulation_steps",)
"""Parts of a configuration that follow from others."""


@dataclass(frozen=True)
class Points:
    """All trials of a study, by number. Columns of equal length; a missing figure is NaN.

    Attributes:
        throughput: Units per second: the confirmation's where there is one, else the search's.
        standard_error: Of the search's mean, units per second.
        peak: Measured peak, bytes.
        predicted: Predicted peak, bytes.
        seconds: Wall time of all runs of the trial.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = (
        "id", "number", "config", "outcome", "cause", "throughput", "throughput_unit", "throughput_standard_error",
        "confirmed", "confirmed_throughput", "peak_memory_bytes", "predicted_peak_memory_bytes", "seconds", "source",
    )  # fmt: skip

    ids: tuple[int, ...]
    numbers: tuple[int, ...]
    configs: tuple[Mapping[str, Any], ...]
    outcomes: tuple[str | None, ...]
    causes: tuple[str | None, ...]
    throughput: Floats
    standard_error: Floats
    confirmed: tuple[bool, ...]
    peak: Floats
    predicted: Floats
    seconds: Floats
    unit: str | None

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def at(self) -> Mapping[int, int]:
        """Position by trial number."""
        return {number: place for place, number in enumerate(self.numbers)}

    @cached_property
    def fingerprint(self) -> str:
        """A name for what charts show of these trials: the same as long as that is the same."""
        figures = (self.throughput, self.peak, self.predicted)
        return sha256(b"".join((*(each.tobytes() for each in figures), repr(self.outcomes).encode()))).hexdigest()

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Ended trials by outcome."""
        return Counter(each for each in self.outcomes if each is not None)

    @cached_property
    def searched(self) -> tuple[str, ...]:
        """Knobs with more than one value among the trials, in the configuration's order."""
        seen: dict[str, set[Any]] = {}
        for config in self.configs:
            for name, value in config.items():
                seen.setdefault(name, set()).add(value)
        return tuple(name for name, values in seen.items() if len(values) > 1 and name not in DERIVED)

    def values(self, knob: str) -> tuple[Any, ...]:
        """The values a knob has among the trials: numbers by size, words by their first appearance."""
        found = dict.fromkeys(config.get(knob) for config in self.configs)
        numbers = [each for each in found if isinstance(each, int | float) and not isinstance(each, bool)]
        return (*sorted(numbers), *(each for each in found if each not in numbers))

    def measured(self) -> NDArray[np.bool_]:
        """Where a trial completed with both metrics."""
        done = np.fromiter((each == "completed" for each in self.outcomes), bool, len(self))
        return done & np.isfinite(self.throughput) & np.isfinite(self.peak)

    def feasible(self, limit_bytes: int | None) -> NDArray[np.bool_]:
        """Where a measured trial stays inside the limit (None: no limit)."""
        return self.measured() if limit_bytes is None else self.measured() & (self.peak <= limit_bytes)


def points_of(rows: Iterable[Sequence[Any]]) -> Points:
    """Columns from rows of :attr:`Points.COLUMNS`. Equal words and values are kept once."""
    columns = dict(zip(Points.COLUMNS, zip(*rows, strict=True), strict=False)) or dict.fromkeys(Points.COLUMNS, ())
    told = np.where(_floats(columns["confirmed"]) > 0, _floats(columns["confirmed_throughput"]), np.nan)
    searched = _floats(columns["throughput"])
    return Points(
        ids=columns["id"],
        numbers=columns["number"],
        configs=_shared(columns["config"]),
        outcomes=columns["outcome"],
        causes=columns["cause"],
        throughput=np.where(np.isfinite(told), told, searched),
        standard_error=_floats(columns["throughput_standard_error"]),
        confirmed=tuple(map(bool, columns["confirmed"])),
        peak=_floats(columns["peak_memory_bytes"]),
        predicted=_floats(columns["predicted_peak_memory_bytes"]),
        seconds=_floats(columns["seconds"]),
        unit=next((each for each in columns["throughput_unit"] if each), None),
    )


def _floats(values: Sequence[Any]) -> Floats:
    return np.array([np.nan if each is None else float(each) for each in values], dtype=np.float64)


def _shared(configs: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    return tuple({sys.intern(name): _shared_value(value) for name, value in config.items()} for config in configs)


def _shared_value(value: Any) -> Any:
    return sys.intern(value) if type(value) is str else value
