"""What one knob's value is worth against another, from trials that differ in nothing else. Pure.

Pairs of one change (``fp32`` to ``bf16-mixed``) at different other settings are pooled: the mean of their log ratios,
weighted by what each is known to. A knob's gain may depend on the others; the pool says what it was on the study's own
configurations, and the smallest and the largest single pair stand beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations
from statistics import fmean
from typing import TYPE_CHECKING

from objectives.config import KnobValue
from tuner.answer.explain import compared_in, places_of
from tuner.answer.steps import Place
from tuner.doctor.check import Figure
from tuner.search.noise import Comparison

if TYPE_CHECKING:
    from tuner.answer.summary import StudyView

WORTH = 1.03
"""A gain below 3 % is not worth a change of somebody's configuration, however well it is known."""
UNSURE = 1.2
"""A change that reads faster and may be so by a fifth has not been looked at long enough to be called none."""
LEAST_ERROR = 1e-4
"""A pair cannot be known better than this, relative: two windows that agree exactly do so by luck."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What a change of one knob brought.

    Attributes:
        start: Value before.
        end: Value after.
        ratio: Throughput after over before.
        low: Lower end of its 95 % interval.
        high: Upper end.
        smallest: The smallest single pair's ratio.
        largest: The largest's.
        memory_bytes: What the change adds to the peak, mean over the pairs; None where not measured.
        trials: Numbers of the trials, pair by pair.
        trial_ids: Their ids.
        modelled: Whether it was only measured together with other changes, and the cost model split them.
    """

    knob: str
    start: KnobValue
    end: KnobValue
    ratio: float
    low: float
    high: float
    smallest: float
    largest: float
    memory_bytes: int | None
    trials: tuple[int, ...]
    trial_ids: tuple[int, ...]
    modelled: bool = False

    @property
    def worth(self) -> bool:
        """Whether it is faster beyond the noise, and by enough to change something for it."""
        return self.low > 1.0 and self.ratio >= WORTH

    @property
    def unsure(self) -> bool:
        """Whether too little is known to say that it is not worth a change. A model alone never says that."""
        return not self.worth and (self.modelled or (self.ratio >= WORTH and self.high >= UNSURE))

    @property
    def slower(self) -> bool:
        """Whether it is slower beyond the noise."""
        return self.high < 1.0

    def figure(self) -> Figure:
        """For the evidence."""
        return Figure(
            name=f"{self.knob} {self.end} over {self.start}",
            value=self.ratio,
            unit="ratio",
            interval=(self.low, self.high),
            of="by the cost model" if self.modelled else f"{len(self.trials) // 2} pair{'s' * (len(self.trials) > 2)}",
        )

    @property
    def ground(self) -> str:
        """How it is known, for people."""
        if self.modelled:
            return "measured together with other changes, split by the cost model"
        return "measured between trials that differ in nothing else"


def gains(view: StudyView, knob: str) -> list[Gain]:
    """Every change of a knob that at least one pair of trials shows, in both directions, largest gain first."""
    compared = compared_in(view)
    found: dict[tuple[KnobValue, KnobValue], list[tuple[Place, Place]]] = {}
    for alike in _alike_but_for(knob, places_of(view)):
        for first, second in permutations(alike, 2):
            values = (first.config.knobs()[knob], second.config.knobs()[knob])
            found.setdefault(values, []).append((first, second))
    made = (
        _pooled(knob, start, end, pairs, [_log_ratio(compared(*pair)) for pair in pairs])
        for (start, end), pairs in found.items()
    )
    return sorted(made, key=lambda gain: -gain.ratio)


def known_gains(view: StudyView, knob: str) -> list[Gain]:
    """The gains of pairs; for a value that no pair starts at, what the cost model says of the winner's own change."""
    found = gains(view, knob)
    known = {gain.start for gain in found}
    return [*found, *(gain for gain in _modelled(view, knob) if gain.start not in known)]


def _modelled(view: StudyView, knob: str) -> list[Gain]:
    """The explanation's modelled step of a knob (:mod:`tuner.answer.explain`): from the baseline's value on."""
    ids = {each.number: each.id for each in view.ended}
    return [
        Gain(
            knob=knob,
            start=step.knobs[knob][0],
            end=step.knobs[knob][1],
            ratio=step.gain,
            low=step.low,
            high=step.high,
            smallest=step.gain,
            largest=step.gain,
            memory_bytes=step.memory_bytes,
            trials=step.trials,
            trial_ids=tuple(ids[number] for number in step.trials),
            modelled=True,
        )
        for step in view.steps or ()
        if step.source == "modelled" and list(step.knobs) == [knob]
    ]


def gain_from(known: Iterable[Gain], start: KnobValue) -> list[Gain]:
    """Those that start at a value and are worth a change, largest first."""
    return [gain for gain in known if gain.start == start and gain.worth]


def _alike_but_for(knob: str, places: Iterable[Place]) -> Iterable[list[Place]]:
    """Groups of trials that differ in this knob at most."""
    groups: dict[tuple[tuple[str, KnobValue], ...], list[Place]] = {}
    for place in places:
        rest = tuple((name, value) for name, value in place.config.knobs().items() if name != knob)
        groups.setdefault(rest, []).append(place)
    return groups.values()


def _log_ratio(seen: Comparison) -> tuple[float, float]:
    """Log ratio and half-width of its interval."""
    return math.log(seen.ratio), max((math.log(seen.high) - math.log(seen.low)) / 2, LEAST_ERROR)


def _pooled(
    knob: str,
    start: KnobValue,
    end: KnobValue,
    pairs: Sequence[tuple[Place, Place]],
    ratios: Sequence[tuple[float, float]],
) -> Gain:
    weights = [half**-2 for _, half in ratios]
    mean = sum(weight * ratio for weight, (ratio, _) in zip(weights, ratios, strict=True)) / sum(weights)
    half = sum(weights) ** -0.5
    peaks = [
        b.peak_memory_bytes - a.peak_memory_bytes
        for a, b in pairs
        if a.peak_memory_bytes is not None and b.peak_memory_bytes is not None
    ]
    return Gain(
        knob=knob,
        start=start,
        end=end,
        ratio=math.exp(mean),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
        smallest=math.exp(min(ratio for ratio, _ in ratios)),
        largest=math.exp(max(ratio for ratio, _ in ratios)),
        memory_bytes=round(fmean(peaks)) if peaks else None,
        trials=tuple(place.number for pair in pairs for place in pair),
        trial_ids=tuple(place.trial_id for pair in pairs for place in pair),
    )
