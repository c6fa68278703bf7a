"""What the data pipeline can deliver, by its settings, apart from what the device computes. Pure.

Loading and computing overlap, so the slower of the two decides; without loader workers the main process loads between
steps, and their times add. A run that waited for data shows its loader's capacity, one that did not shows a lower bound
of it; a capacity measured alone is known at once for all configurations with those settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tuner.search.planner.candidates import Codes, Encoded, Flags, Floats
from tuner.search.planner.effects import Posterior, learn
from tuner.search.planner.observation import LoaderCapacity, Seen
from tuner.search.planner.priors import CAPACITY, LOADER_KNOBS, UNKNOWN, KnobPrior
from tuner.search.planner.structure import Beliefs, Points, Structure

STARVED = 0.2
"""From this share of waiting on, a run with workers shows what its loader can deliver."""
SURELY_MEASURED = 0.02
"""Smaller shares are not told from none."""
AMPLE = 3.0
"""Before anything is known, one worker delivers so many times the reference throughput, within a factor of e or so."""
OVERLAP = 8.0
"""Sharpness of the minimum where loading overlaps: at equal rates a twelfth is lost."""
READING_ERROR = 0.05
WAIT_ERROR = 0.4
"""How far a stall share is off, relative: it is read in one short window, and every pause of the machine enters it."""
NOTABLE = 0.4
"""Where all share one loader setting, waiting is looked at from this share on; below, it is part of everything."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Settings:
    """The distinct loader settings among some configurations.

    Attributes:
        encoded: One row a setting, loader knobs alone.
        of_candidates: Number of each candidate's setting.
        of_seen: Number of each run's setting.
        overlaps: Whether it loads beside the computing, by setting.
    """

    encoded: Encoded
    of_candidates: Codes
    of_seen: Codes
    overlaps: Flags


@dataclass(kw_only=True)
class _Told:
    """Observations of capacities, as they are collected: settings, logarithms, variances, and lower bounds."""

    settings: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)
    bounded: list[int] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)

    def value(self, setting: int, value: float, error: float) -> None:
        self.settings.append(setting)
        self.values.append(value)
        self.noise.append(error**2)

    def bound(self, setting: int, value: float) -> None:
        self.bounded.append(setting)
        self.bounds.append(value)


class Loader:
    """Capacities by setting after what has been seen.

    Args:
        mine: The candidates' codes.
        theirs: The runs' codes.
        seen: The runs.
        capacities: What was measured without training.
    """

    def __init__(
        self, mine: Encoded, theirs: Encoded, seen: Sequence[Seen], capacities: Sequence[LoaderCapacity]
    ) -> None:
        self.settings = settings_of(mine, theirs)
        told = _told(self.settings, seen, capacities)
        self._centre = _centre(seen, capacities)
        structure = Structure(self.settings.encoded, _beliefs(self.settings.encoded))
        self._points = structure.points(self.settings.encoded, np.arange(len(self.settings.encoded.codes)))
        self._posterior = self._fit(structure, told)

    def _fit(self, structure: Structure, told: _Told) -> Posterior:
        values = np.array(told.values) - self._centre
        points = self._points.at(np.array(told.settings, dtype=np.intp))
        made = learn(structure, points, values, np.array(told.noise))
        bounded = self._points.at(np.array(told.bounded, dtype=np.intp))
        return made.bounded(bounded, np.array(told.bounds) - self._centre, upper=False, spread=READING_ERROR)

    def capacities(self) -> tuple[Floats, Floats]:
        """Mean and covariance of the logarithm of every setting's capacity."""
        mean, covariance = self._posterior.joint(self._points)
        return mean + self._centre, covariance

    @property
    def observations(self) -> Points:
        """What the capacities were learned from."""
        return self._posterior.points


def tells_of_loading(mine: Encoded, seen: Sequence[Seen], capacities: Sequence[LoaderCapacity]) -> bool:
    """Whether enough is known about waiting for data, and it may decide anything."""
    shares = [each.data_stall_share for each in seen if each.data_stall_share is not None]
    several = any(len(mine.values[column]) > 1 for column, name in enumerate(mine.names) if name in LOADER_KNOBS)
    return bool(capacities) or (bool(shares) and several) or max(shares, default=0.0) > NOTABLE


def together(compute: Floats, capacity: Floats, overlaps: Flags) -> Floats:
    """Log throughput of computing and loading together, elementwise; ``overlaps`` as in :class:`Settings`."""
    sharp = np.where(overlaps, OVERLAP, 1.0)
    made: Floats = -np.logaddexp(-sharp * compute, -sharp * capacity) / sharp
    return made


def settings_of(mine: Encoded, theirs: Encoded) -> Settings:
    """The settings of candidates and runs, numbered together."""
    columns = [column for column, name in enumerate(mine.names) if name in LOADER_KNOBS]
    both = np.concatenate([mine.codes[:, columns], theirs.codes[:, columns]])
    codes, places = np.unique(both, axis=0, return_inverse=True) if columns else (both[:1], np.zeros(len(both), int))
    places = places.reshape(-1)
    encoded = Encoded(
        names=tuple(mine.names[column] for column in columns),
        values=tuple(mine.values[column] for column in columns),
        codes=codes,
        accumulates=np.zeros(len(codes), dtype=np.bool_),
    )
    return Settings(
        encoded=encoded,
        of_candidates=places[: len(mine.codes)],
        of_seen=places[len(mine.codes) :],
        overlaps=encoded.numbers("loader_workers", default=1.0) > 0,
    )


def _told(settings: Settings, seen: Sequence[Seen], capacities: Sequence[LoaderCapacity]) -> _Told:
    told = _Told()
    for each in capacities:
        for setting in _matching(settings.encoded, each):
            told.value(setting, np.log(each.throughput), max(each.relative_standard_error, 0.01))
    for run, setting in zip(seen, settings.of_seen.tolist(), strict=True):
        if run.measured and not run.is_bound and run.data_stall_share is not None:
            _tell(told, run.throughput or 1.0, run.data_stall_share, setting, bool(settings.overlaps[setting]))
    return told


def _tell(told: _Told, throughput: float, share: float, setting: int, overlaps: bool) -> None:
    if not overlaps:
        loading = max(share, SURELY_MEASURED)
        value = np.log(throughput / loading)
        if share > SURELY_MEASURED:
            told.value(setting, value, WAIT_ERROR + SURELY_MEASURED / loading)
        else:
            told.bound(setting, value)
    elif share > STARVED:
        told.value(setting, np.log(throughput), READING_ERROR)
    else:
        told.bound(setting, np.log(throughput))


def _matching(encoded: Encoded, capacity: LoaderCapacity) -> list[int]:
    rows = [
        {name: encoded.values[column][code] for column, (name, code) in enumerate(zip(encoded.names, row, strict=True))}
        for row in encoded.codes.tolist()
    ]
    return [
        number
        for number, row in enumerate(rows)
        if all(row.get(name, value) == value for name, value in capacity.settings.items())
    ]


def _centre(seen: Sequence[Seen], capacities: Sequence[LoaderCapacity]) -> float:
    """Logarithm of what one worker is thought to deliver."""
    if capacities:
        each = capacities[0]
        return float(np.log(each.throughput / max(int(each.settings.get("loader_workers", 1)), 1)))
    reference = next((run.throughput for run in seen if run.measured), None) or 1.0
    return float(np.log(AMPLE * reference))


def _beliefs(encoded: Encoded) -> Beliefs:
    knobs = dict(CAPACITY)
    column = encoded.column("loader_workers")
    if column is not None:
        workers = [int(value) for value in encoded.values[column] if value is not None]
        more: KnobPrior = replace(
            knobs["loader_workers"], means={count: float(np.log(max(count, 1))) for count in workers}
        )
        knobs["loader_workers"] = more
    return Beliefs(knobs=knobs, unknown=UNKNOWN, level_spread=1.0, noise=READING_ERROR)
