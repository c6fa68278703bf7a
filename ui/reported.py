"""The throughput that is reported of a trial, the same wherever it is shown. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from storage.records import TrialRecord
from ui.points import Floats, Points


@dataclass(frozen=True, kw_only=True)
class Reported:
    """What the answer says about throughputs, in units per second.

    Attributes:
        level: Factor that brings search numbers to the confirmation's level; 1 before there is one.
        told: By trial number, of the trials that the answer names.
        intervals: Their 95 % intervals.
    """

    level: float = 1.0
    told: Mapping[int, float] = field(default_factory=dict)
    intervals: Mapping[int, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of_answer(cls, answer: Mapping[str, Any]) -> Reported:
        """From the document of ``tuner show``."""
        named = [*(answer.get("front") or []), *(each for each in (answer.get("best"), answer.get("baseline")) if each)]
        return cls(
            level=float(answer.get("search_level") or 1.0),
            told={each["number"]: each["throughput"] for each in named if each["throughput"] is not None},
            intervals={
                each["number"]: tuple(each["throughput_interval"]) for each in named if each["throughput_interval"]
            },
        )

    def of(self, trial: TrialRecord) -> float | None:
        """A trial's; None without a measurement."""
        if trial.number in self.told:
            return self.told[trial.number]
        if trial.confirmed and trial.confirmed_throughput is not None:
            return trial.confirmed_throughput
        return None if trial.throughput is None else trial.throughput * self.level

    def column(self, points: Points) -> Floats:
        """Every trial's; NaN without a measurement."""
        found = points.throughput * np.where(np.array(points.confirmed, dtype=bool), 1.0, self.level)
        for number, throughput in self.told.items():
            if number in points.at:
                found[points.at[number]] = throughput
        return found
