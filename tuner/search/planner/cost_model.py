"""Throughput of every configuration with honest uncertainty, and the device time a run of it takes. Pure.

One optimizer step takes ``accumulation x (floor + slope x micro-batch) + optimizer step``. At a fixed global batch the
time per sample is then ``floor / micro-batch + slope + optimizer step / global batch``: its logarithm is a level, a
floor's bend in the micro-batch, and nearly additive effects of the other knobs with small interactions
(:mod:`.effects`). Waiting for data is taken out first and modelled for itself (:mod:`.loader`); throughput is what both
allow together. Runs stopped early enter as upper bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from objectives.config import KnobValue
from tuner.search.planner.candidates import Candidates, Codes, Encoded, Floats
from tuner.search.planner.effects import Posterior, learn
from tuner.search.planner.loader import WAIT_ERROR, Loader, tells_of_loading, together
from tuner.search.planner.observation import Config, Earlier, LoaderCapacity, Seen
from tuner.search.planner.priors import (
    CACHE,
    COMPILE_SECONDS,
    FLOOR_SAMPLES,
    LOADER_AS_KNOB,
    LOADER_KNOBS,
    MICRO_BATCH,
    NOISE,
    RATE,
    UNKNOWN,
    KnobPrior,
)
from tuner.search.planner.structure import Beliefs, Points, Structure, joined, thinned

MOST_EARLIER = 150
"""Runs of earlier studies that are used, the fastest of each."""
LONGEST_WAIT = 0.97
FALLBACK_SECONDS = 10.0
"""A run, before any has been seen."""
MISFIT_SHARE = 0.6
"""Of a run's seconds, what one that runs out of memory takes, before one has."""
SECONDS_FROM = 80
"""Latest runs that predict the seconds of the next."""


class CostModel:
    """What is believed of all candidates after some runs.

    Args:
        candidates: What may be tried.
        seen: This study's runs.
        device_kind: ``cpu`` or ``cuda``: which priors.
        earlier: What other studies taught.
        capacities: Loader settings measured alone.
        running: Configurations that run now: they count as if they had given what is expected of them.
    """

    def __init__(
        self,
        candidates: Candidates,
        seen: Sequence[Seen],
        *,
        device_kind: str = "cpu",
        earlier: Sequence[Earlier] = (),
        capacities: Sequence[LoaderCapacity] = (),
        running: Sequence[Config] = (),
    ) -> None:
        self._kind = device_kind if device_kind in RATE else "cpu"
        past = [run for study in earlier for run in _fastest(study.seen)]
        self.mine, coded = candidates.extended([run.config for run in (*seen, *past)] + list(running))
        self._candidates = candidates
        self.theirs = known = rows_of(coded, np.arange(len(seen)))
        self._waits = waits = tells_of_loading(self.mine, seen, capacities)
        self.loader = Loader(self.mine, known, seen, capacities) if waits else None
        self._structure = Structure(self.mine, rate_beliefs(self._kind, waits))
        self.points = self._structure.points(self.mine, np.arange(len(candidates)))
        self.seen_points = self._points_of([run.config for run in seen], known, 0, 1.0)
        self._centre = _level(seen, waits) or 0.0
        self.compute = self._learn(seen, earlier, coded, running)
        self.seconds = RunSeconds(self.mine, known, seen, self._kind)

    def log_rates(self) -> Floats:
        """Expected log throughput of every candidate, shape (candidates,)."""
        mean = self.compute.means(self.points) + self._centre
        if self.loader is None:
            return mean
        settings = self.loader.settings
        capacity = self.loader.capacities()[0][settings.of_candidates]
        return together(mean, capacity, settings.overlaps[settings.of_candidates])

    def seen_log_rates(self, rows: Codes) -> Floats:
        """Expected log throughput of some of this study's runs, noise taken out, shape (rows,)."""
        mean = self.compute.joint(self.seen_points.at(rows))[0] + self._centre
        if self.loader is None:
            return mean
        settings = self.loader.settings
        mine = settings.of_seen[rows]
        return together(mean, self.loader.capacities()[0][mine], settings.overlaps[mine])

    def optimistic(self, places: Codes) -> Floats:
        """Log throughput one deviation above what is expected of some candidates, shape (places,)."""
        mean, variance = self.compute.marginals(self.points.at(places))
        high: Floats = mean + self._centre + np.sqrt(variance)
        if self.loader is None:
            return high
        mine = self.loader.settings.of_candidates[places]
        capacity, spread = self.loader.capacities()
        ample = capacity + np.sqrt(np.maximum(np.diag(spread), 0.0))
        return together(high, ample[mine], self.loader.settings.overlaps[mine])

    def draws(self, row: int, places: Codes, normal: Floats, loader_normal: Floats) -> Floats:
        """Joint draws of log throughput.

        Args:
            row: One of this study's runs.
            places: Numbers of candidates.
            normal: Standard normal numbers, shape (draws, at least len(places) + 1).
            loader_normal: The same for loader settings.

        Returns:
            Shape (draws, 1 + len(places)): the run first.
        """
        points = joined(self.seen_points.at(np.array([row])), self.points.at(places))
        mean, covariance = self.compute.joint(points)
        compute = _drawn(mean + self._centre, covariance, normal)
        if self.loader is None:
            return compute
        settings = self.loader.settings
        mine = np.concatenate([settings.of_seen[[row]], settings.of_candidates[places]])
        used, position = np.unique(mine, return_inverse=True)
        expected, spread = self.loader.capacities()
        capacity = _drawn(expected[used], spread[np.ix_(used, used)], loader_normal)
        return together(compute, capacity[:, position], settings.overlaps[mine])

    def unseen(self) -> Floats:
        """Prior variance of the main effects of values no run has shown, shape (candidates,): where to look closer."""
        total = np.zeros(len(self.points))
        for each in self._structure.factors:
            shown = np.zeros(len(each.mean), dtype=np.bool_)
            shown[self.compute.points.codes[:, each.column]] = True
            spread = np.where(shown, 0.0, (each.main**2).sum(axis=1))
            total += spread[self.points.codes[:, each.column]]
        return total * self.compute.scales.main

    def _learn(
        self, seen: Sequence[Seen], earlier: Sequence[Earlier], coded: Encoded, running: Sequence[Config]
    ) -> Posterior:
        points, values, noise, bounds = self._own(seen, coded, 0, 1.0, self._centre)
        parts, told, errors, start = [points], [values], [noise], len(seen)
        for number, study in enumerate(earlier, start=1):
            runs = _fastest(study.seen)
            rows = rows_of(coded, np.arange(start, start + len(runs)))
            made = self._own(runs, rows, number, study.similarity, _level(runs, self._waits) or 0.0)
            parts, told, errors = [*parts, made[0]], [*told, made[1]], [*errors, made[2]]
            start += len(runs)
        posterior = learn(self._structure, joined(*parts), np.concatenate(told), np.concatenate(errors))
        posterior = posterior.bounded(bounds[0], bounds[1], upper=True, spread=NOISE[self._kind])
        return self._fantasised(posterior, rows_of(coded, np.arange(start, start + len(running))), running)

    def _own(
        self, runs: Sequence[Seen], coded: Encoded, study: int, similarity: float, centre: float
    ) -> tuple[Points, Floats, Floats, tuple[Points, Floats]]:
        """One study's observations, and its bounds."""
        points = self._points_of([run.config for run in runs], coded, study, similarity)
        rates = np.array([_compute_rate(run, self._waits) if run.measured else 0.0 for run in runs]) - centre
        noise = np.array([self._variance(run) for run in runs])
        exact = np.array([run.measured and not run.is_bound for run in runs], dtype=np.bool_)
        below = np.array([run.measured and run.is_bound for run in runs], dtype=np.bool_)
        kept, cut = (thinned(rows, rates[rows]) for rows in (np.flatnonzero(exact), np.flatnonzero(below)))
        return points.at(kept), rates[kept], noise[kept], (points.at(cut), rates[cut])

    def _points_of(self, configs: Sequence[Config], coded: Encoded, study: int, similarity: float) -> Points:
        own = [
            -1 - row if (place := self._candidates.place(each)) is None else place for row, each in enumerate(configs)
        ]
        rows = rows_of(coded, np.arange(len(configs)))
        return self._structure.points(rows, np.array(own, dtype=np.intp), study=study, similarity=similarity)

    def _variance(self, run: Seen) -> float:
        told = run.relative_standard_error
        spread: float = NOISE[self._kind] ** 2 / max(run.runs, 1)
        spread = spread if told is None else max(told**2, spread / 9)
        wait = min(run.data_stall_share or 0.0, LONGEST_WAIT) if self._waits else 0.0
        return spread + (WAIT_ERROR * wait / (1 - wait)) ** 2

    def _fantasised(self, posterior: Posterior, rows: Encoded, running: Sequence[Config]) -> Posterior:
        if not running:
            return posterior
        points = self._points_of(running, rows, 0, 1.0)
        mean, _ = posterior.joint(points)
        return Posterior(
            self._structure,
            joined(posterior.points, points),
            np.concatenate([posterior.values, mean]),
            np.concatenate([posterior.noise, np.full(len(mean), NOISE[self._kind] ** 2)]),
            posterior.scales,
        )


class RunSeconds:
    """Device time of a run of each candidate, as the runs so far say it."""

    def __init__(self, mine: Encoded, known: Encoded, seen: Sequence[Seen], kind: str) -> None:
        rows = [row for row, run in enumerate(seen) if run.outcome == "completed" and run.seconds > 0][-SECONDS_FROM:]
        plain = [seen[row].seconds - (seen[row].compile_seconds or 0.0) for row in rows]
        self.typical = max(float(np.median(plain)), 1e-3) if plain else FALLBACK_SECONDS
        structure = Structure(mine, _seconds_beliefs(kind, self.typical))
        values = np.log([seen[row].seconds for row in rows]) - np.log(self.typical)
        points = structure.points(rows_of(known, np.array(rows, dtype=np.intp)), np.array(rows, dtype=np.intp))
        posterior = learn(structure, points, values, np.full(len(rows), 0.1**2))
        self.expected: Floats = self.typical * np.exp(
            posterior.means(structure.points(mine, np.arange(len(mine.codes))))
        )
        failed = [run.seconds for run in seen if run.outcome == "device_oom" and run.seconds > 0]
        self.misfit = float(np.median(failed)) if failed else MISFIT_SHARE * self.typical


def rows_of(encoded: Encoded, rows: Codes) -> Encoded:
    """Some of the configurations."""
    return replace(encoded, codes=encoded.codes[rows], accumulates=encoded.accumulates[rows])


def rate_beliefs(kind: str, waits: bool) -> Beliefs:
    """The prior of log throughput; ``waits``: whether the loader is modelled for itself."""
    (samples, spread), (ample, loss) = FLOOR_SAMPLES[kind], CACHE[kind]
    return Beliefs(
        knobs=RATE[kind] if waits else _loader_as_knobs(RATE[kind]),
        unknown=UNKNOWN,
        micro_mean=lambda sizes: -np.log(1 + samples / sizes) - loss * np.maximum(np.log2(sizes / ample), 0.0),
        micro_bend=lambda sizes: np.log(1 + 4 * samples / sizes) / np.log(1 + 4 * samples),
        micro_spread=spread,
        level_spread=1.0,
        noise=NOISE[kind],
    )


def _loader_as_knobs(knobs: Mapping[str, KnobPrior]) -> dict[str, KnobPrior]:
    wider = {
        name: replace(knobs[name], spread=LOADER_AS_KNOB * knobs[name].spread, couples=0.3) for name in LOADER_KNOBS
    }
    return {**knobs, **wider}


def _seconds_beliefs(kind: str, typical: float) -> Beliefs:
    extra: dict[KnobValue, float] = {
        value: float(np.log1p(seconds / typical)) for value, seconds in COMPILE_SECONDS[kind].items()
    }
    return Beliefs(
        knobs={
            "compile": KnobPrior(means=extra, spread=0.7, couples=0.05),
            MICRO_BATCH: KnobPrior(spread=0.3, couples=0.1),
        },
        unknown=KnobPrior(spread=0.15, couples=0.05),
        level_spread=0.5,
        noise=0.1,
    )


def _fastest(seen: Sequence[Seen]) -> list[Seen]:
    measured = [run for run in seen if run.measured and not run.is_bound]
    return sorted(measured, key=lambda run: -(run.throughput or 0.0))[:MOST_EARLIER]


def _level(seen: Sequence[Seen], waits: bool) -> float | None:
    """A study's middle log throughput; None without any."""
    rates = [_compute_rate(run, waits) for run in seen if run.measured and not run.is_bound]
    return float(np.median(rates)) if rates else None


def _compute_rate(run: Seen, waits: bool) -> float:
    """Log throughput; with ``waits`` of computing alone: what it would be without the waiting for data."""
    wait = min(max(run.data_stall_share or 0.0, 0.0), LONGEST_WAIT) if waits else 0.0
    return float(np.log((run.throughput or 1.0) / (1 - wait)))


def _drawn(mean: Floats, covariance: Floats, normal: Floats) -> Floats:
    size = len(mean)
    root = np.linalg.cholesky(covariance + (1e-10 + 1e-9 * np.abs(covariance).max()) * np.eye(size))
    made: Floats = mean + normal[:, :size] @ root.T
    return made
