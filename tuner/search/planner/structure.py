"""The parts of the model in :mod:`.effects`: which effects there are, and how much each may be before any run. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.search.planner.candidates import Codes, Encoded, Floats, Value
from tuner.search.planner.priors import (
    FAMILY_SPREAD,
    LOADER_KNOBS,
    MICRO_BATCH,
    OWN_SPREAD,
    PAIR_SPREAD,
    KnobPrior,
)

MOST_RUNS = 160
"""Runs a model learns from at most: its cost grows with their number cubed, what one more teaches becomes nothing."""


@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """The prior of one quantity.

    Attributes:
        knobs: Prior by knob.
        unknown: The prior of every other knob.
        micro_mean: Mean effect of a micro-batch as a function of its size; None for none.
        micro_bend: The shape in which that effect may be wrong, as a function of the size, 1 at most.
        micro_spread: How far it may be wrong.
        level_spread: Of a study's level.
        noise: Relative spread between runs of one configuration.
    """

    knobs: Mapping[str, KnobPrior]
    unknown: KnobPrior
    micro_mean: Callable[[Floats], Floats] | None = None
    micro_bend: Callable[[Floats], Floats] | None = None
    micro_spread: float = 0.0
    level_spread: float = 2.0
    noise: float = 0.03


@dataclass(frozen=True, kw_only=True, eq=False)
class Factor:
    """One knob's part: prior means, and square roots (values x values) of its prior covariances."""

    column: int
    mean: Floats
    main: Floats
    pair: Floats
    square: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Points:
    """Configurations for the model, shapes (points,) or (points, knobs).

    Attributes:
        family: Equal numbers for equal combinations of all knobs but the micro-batch.
        own: Equal numbers for the same configuration.
        similarity: 1 for this study's, an earlier study's similarity else.
        study: 0 for this one.
    """

    codes: Codes
    family: Codes
    own: Codes
    similarity: Floats
    study: Codes

    def __len__(self) -> int:
        return len(self.codes)

    def at(self, places: Codes) -> Points:
        """Some of them."""
        return Points(
            codes=self.codes[places],
            family=self.family[places],
            own=self.own[places],
            similarity=self.similarity[places],
            study=self.study[places],
        )


class Structure:
    """The parts of the model for one set of knobs and values."""

    def __init__(self, encoded: Encoded, beliefs: Beliefs) -> None:
        self.beliefs = beliefs
        self.factors = tuple(
            _factor(column, name, encoded.values[column], beliefs)
            for column, name in enumerate(encoded.names)
            if len(encoded.values[column]) > 1
        )
        micro = encoded.column(MICRO_BATCH)
        self.micro = next((each for each in self.factors if each.column == micro), None)
        self.family_names = {MICRO_BATCH, *LOADER_KNOBS}

    def points(self, encoded: Encoded, own: Codes, *, study: int = 0, similarity: float = 1.0) -> Points:
        """Configurations of one study."""
        count = len(encoded.codes)
        return Points(
            codes=encoded.codes,
            family=encoded.groups(self.family_names),
            own=own,
            similarity=np.full(count, similarity),
            study=np.full(count, study, dtype=np.intp),
        )

    def prior_mean(self, codes: Codes) -> Floats:
        """Shape (points,)."""
        total = np.zeros(len(codes))
        for each in self.factors:
            total += each.mean[codes[:, each.column]]
        return total

    def covariance(self, a: Points, b: Points) -> tuple[Floats, Floats, Floats]:
        """Prior covariances of level, main effects and interactions (families and own included), shape (a, b) each."""
        same_study = a.study[:, None] == b.study[None, :]
        shared = np.where(same_study, 1.0, a.similarity[:, None] * b.similarity[None, :])
        level = np.where(same_study, self.beliefs.level_spread**2, 0.0)
        return level, self._main(a, b) * shared, self._interactions(a, b) * shared

    def variances(self, points: Points) -> tuple[float, Floats, Floats]:
        """The same of each point with itself, shape (points,)."""
        main, summed, squares = (
            (self._features(points.codes, part) ** 2).sum(axis=1) for part in ("main", "pair", "square")
        )
        return self.beliefs.level_spread**2, main, (summed**2 - squares) / 2 + FAMILY_SPREAD**2 + OWN_SPREAD**2

    def _main(self, a: Points, b: Points) -> Floats:
        made: Floats = self._features(a.codes, "main") @ self._features(b.codes, "main").T
        return made

    def _interactions(self, a: Points, b: Points) -> Floats:
        """All pairs at once: the square of the sum is the squares and twice the pairs."""
        summed = self._features(a.codes, "pair") @ self._features(b.codes, "pair").T
        squares = self._features(a.codes, "square") @ self._features(b.codes, "square").T
        pairs = (summed**2 - squares) / 2
        family = FAMILY_SPREAD**2 * (a.family[:, None] == b.family[None, :])
        own = OWN_SPREAD**2 * (a.own[:, None] == b.own[None, :])
        made: Floats = np.maximum(pairs, 0.0) + family * self._near(a, b) + own
        return made

    def _near(self, a: Points, b: Points) -> Floats | float:
        """How alike the micro-batches are, 0 to 1."""
        if self.micro is None:
            return 1.0
        table = self.micro.pair @ self.micro.pair.T
        table = table / table.max()
        made: Floats = table[np.ix_(a.codes[:, self.micro.column], b.codes[:, self.micro.column])]
        return made

    def _features(self, codes: Codes, part: str) -> Floats:
        if not self.factors:
            return np.zeros((len(codes), 1))
        return np.concatenate([getattr(each, part)[codes[:, each.column]] for each in self.factors], axis=1)


def thinned(rows: Codes, worth: Floats, most: int = MOST_RUNS) -> Codes:
    """At most so many of these rows: the most worthy half, and of the others evenly from the best to the worst."""
    if len(rows) <= most:
        return rows
    order = np.argsort(-worth, kind="stable")
    top, rest = order[: most // 2], order[most // 2 :]
    others = rest[np.linspace(0, len(rest) - 1, most - most // 2).round().astype(np.intp)]
    made: Codes = np.sort(rows[np.concatenate([top, others])])
    return made


def joined(*parts: Points) -> Points:
    """One after the other."""
    return Points(
        codes=np.concatenate([each.codes for each in parts]),
        family=np.concatenate([each.family for each in parts]),
        own=np.concatenate([each.own for each in parts]),
        similarity=np.concatenate([each.similarity for each in parts]),
        study=np.concatenate([each.study for each in parts]),
    )


def _factor(column: int, name: str, values: Sequence[Value], beliefs: Beliefs) -> Factor:
    prior = beliefs.knobs.get(name, beliefs.unknown)
    alike = _alike(name, values, prior)
    mean = np.array([0.0 if value is None else prior.means.get(value, 0.0) for value in values])
    main = prior.spread**2 * alike
    if name == MICRO_BATCH:
        sizes = _sizes(values)
        mean = mean if beliefs.micro_mean is None else mean + beliefs.micro_mean(sizes)
        bend = np.zeros(len(sizes)) if beliefs.micro_bend is None else beliefs.micro_bend(sizes)
        main = main + beliefs.micro_spread**2 * np.outer(bend, bend)
    weight = PAIR_SPREAD * prior.couples * alike
    return Factor(column=column, mean=mean, main=_root(main), pair=_root(weight), square=_root(weight**2))


def _alike(name: str, values: Sequence[Value], prior: KnobPrior) -> Floats:
    """How alike the values' effects are, 0 to 1, shape (values, values)."""
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        kin = np.array([value in prior.kin for value in values])
        related: Floats = np.where(np.outer(kin, kin), prior.kinship, 0.0)
        related += np.diag(np.where(kin, 1 - prior.kinship, 1.0))
        return related
    steps = np.log2(1 + np.array([float(value or 0) for value in values]))
    if name == MICRO_BATCH:
        steps = np.log2(_sizes(values))
    made: Floats = np.exp(-0.5 * ((steps[:, None] - steps[None, :]) / prior.octaves) ** 2)
    return made


def _sizes(values: Sequence[Value]) -> Floats:
    """Micro-batch sizes as numbers; 1 for what is none."""
    return np.array([float(value) if isinstance(value, int) and value > 0 else 1.0 for value in values])


def _root(matrix: Floats) -> Floats:
    """A square root of a covariance that may be singular."""
    values, vectors = np.linalg.eigh(matrix)
    made: Floats = vectors * np.sqrt(np.maximum(values, 0.0))
    return made
