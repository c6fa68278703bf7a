"""Which configuration to run next, and when nothing left is worth a run. Pure, deterministic, stateless between calls.

Each plan asks: how much faster than the best so far may this be (:mod:`.cost_model`), does it fit (:mod:`.memory`),
does it run at all (:mod:`.faults`), and what does finding out cost. It takes the largest expected gain per second of
device time, and ends the search when running *everything* left could not be expected to improve the best by the stated
share. Configurations are proposed once: further windows of contenders are the schedule's, which knows which were
disturbed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tuner.search.planner.candidates import Candidates, Codes, Flags, Floats
from tuner.search.planner.cost_model import CostModel
from tuner.search.planner.faults import chance_of_running
from tuner.search.planner.gain import expected_gain, front_gain, gain_of_all
from tuner.search.planner.memory import Memory
from tuner.search.planner.observation import Config, Earlier, LoaderCapacity, Seen

CONTENDERS = 24
"""Fastest readings among which the best is looked for."""
NOTHING_YET_PENALTY = 0.5
"""While nothing has fitted, what a launch out of memory costs, in shares of the fastest configuration's worth."""


@dataclass(frozen=True, kw_only=True)
class PlannerOptions:
    """How to search.

    Attributes:
        use_predictions: Whether predicted peaks are looked at (else peaks are learned from runs alone).
        stop_share: The search ends when everything left cannot be expected to gain this share.
        stop_risk: And when the chance that it would gain more than that is at most this.
        fewest_runs: Results before it may end, the baseline's included.
        front_weight: Worth of a share of the front's area, in shares of throughput.
        misfit_penalty: What a launch out of memory costs beside its seconds, in shares of throughput.
        shortlist: Candidates whose uncertainty is looked at.
        closest: Of them, those whose joint distribution is.
        draws: Joint draws of the model.
    """

    use_predictions: bool = True
    stop_share: float = 0.01
    stop_risk: float = 0.05
    fewest_runs: int = 4
    front_weight: float = 0.02
    misfit_penalty: float = 0.05
    shortlist: int = 240
    closest: int = 96
    draws: int = 128


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The next run, or the end.

    Attributes:
        index: Number of the candidate; None at the end, and when all that is left runs now.
        config: The candidate.
        stop: Why nothing is proposed, for people; None while something is.
        kind: For code: ``run``, ``exhausted`` or ``nothing_to_gain``.
        expected_gain: Share of the best throughput that this run (at the end: everything left) is expected to gain.
        expected_seconds: Device time of the run.
        probability_fits: Chance that it fits and runs.
        why: One sentence for people.
    """

    index: int | None = None
    config: Config | None = None
    stop: str | None = None
    kind: Literal["run", "exhausted", "nothing_to_gain"] = "run"
    expected_gain: float = 0.0
    expected_seconds: float = 0.0
    probability_fits: float = 0.0
    why: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class _View:
    """Everything one plan looks at: models after what was seen, and the candidates that are free."""

    costs: CostModel
    chances: Floats
    running: Floats
    memory: Memory
    free: Flags
    seen: Sequence[Seen]
    best: int | None
    rates: Floats


class Planner:
    """Plans a search over candidates.

    Args:
        candidates: What may be tried; encoded once.
        limit_bytes: What the peak may be at most; None: everything fits.
        device_kind: ``cpu`` or ``cuda``: which priors.
        seed: Of the draws.
        earlier: What earlier studies taught.
        loader_capacities: Loader settings measured alone.
        options: How to search.
    """

    def __init__(
        self,
        candidates: Candidates,
        *,
        limit_bytes: float | None = None,
        device_kind: str = "cpu",
        seed: int = 0,
        earlier: Sequence[Earlier] = (),
        loader_capacities: Sequence[LoaderCapacity] = (),
        options: PlannerOptions | None = None,
    ) -> None:
        self.candidates = candidates
        self.limit_bytes = limit_bytes
        self.device_kind = device_kind
        self.earlier = tuple(earlier)
        self.capacities = tuple(loader_capacities)
        self.options = options or PlannerOptions()
        chance = np.random.default_rng(seed)
        half = self.options.draws // 2
        self._normal = _antithetic(chance, half, self.options.closest + 1)
        self._loader_normal = _antithetic(chance, half, self.options.closest + 1)
        self._seed = seed

    def plan(self, seen: Sequence[Seen], running: Sequence[Config] = ()) -> Plan:
        """The next configuration: never one that was seen or runs now, never a certain misfit.

        Args:
            seen: Results in the order of their runs; a ``cancelled`` one may come again.
            running: What other workers run now.
        """
        view = self._view(seen, running)
        if not view.free.any():
            return self._exhausted(view)
        if view.best is None:
            return self._first_fit(view)
        return self._most_gain(view)

    def best(self, seen: Sequence[Seen]) -> int | None:
        """Row in ``seen`` of the feasible result with the highest expected throughput; None without one.

        Noise is taken out by the model: the luckiest reading need not be the fastest configuration.
        """
        return self._best_row(self.costs(seen), seen)

    def costs(self, seen: Sequence[Seen], running: Sequence[Config] = ()) -> CostModel:
        """The cost model after these results."""
        return CostModel(
            self.candidates,
            seen,
            device_kind=self.device_kind,
            earlier=self.earlier,
            capacities=self.capacities,
            running=running,
        )

    def _view(self, seen: Sequence[Seen], running: Sequence[Config]) -> _View:
        costs = self.costs(seen, running)
        mine, theirs = costs.mine, costs.theirs
        memory = Memory(
            self.candidates,
            mine,
            theirs,
            seen,
            limit_bytes=self.limit_bytes,
            device_kind=self.device_kind,
            use_predictions=self.options.use_predictions,
        )
        rates = costs.log_rates()
        works = chance_of_running(mine, theirs, seen)
        return _View(
            costs=costs,
            chances=memory.chances() * works,
            running=works,
            memory=memory,
            free=~memory.refused & self._unseen(seen, running),
            seen=seen,
            best=self._best_row(costs, seen),
            rates=rates,
        )

    def _unseen(self, seen: Sequence[Seen], running: Sequence[Config]) -> Flags:
        new = np.ones(len(self.candidates), dtype=np.bool_)
        spoken = [run.config for run in seen if run.outcome != "cancelled"]
        for config in (*spoken, *running):
            place = self.candidates.place(config)
            if place is not None:
                new[place] = False
        return new

    def _best_row(self, costs: CostModel, seen: Sequence[Seen]) -> int | None:
        rows = [row for row, run in enumerate(seen) if run.fits(self.limit_bytes)]
        rows = sorted(rows, key=lambda row: -(seen[row].throughput or 0.0))[:CONTENDERS]
        if not rows:
            return None
        return rows[int(np.argmax(costs.seen_log_rates(np.array(rows, dtype=np.intp))))]

    def _most_gain(self, view: _View) -> Plan:
        """The largest expected gain per second, or the end."""
        places = self._shortlist(view)
        draws = view.costs.draws(view.best or 0, places, self._normal, self._loader_normal)
        differences = draws[:, 1:] - draws[:, :1]
        chances = view.memory.refined(places) * view.running[places]
        gains = expected_gain(differences)
        risk = (1 - chances) * self.options.misfit_penalty
        worthy = chances * gains > risk
        if (ended := self._ended(view, gain_of_all(differences[:, worthy], chances[worthy]))) is not None:
            return ended
        front = front_gain(
            np.exp(draws[:, 1:].mean(axis=0)), view.memory.peaks[places], self._front(view), self._most()
        )
        seconds = view.costs.seconds.expected[places]
        worth = chances * (gains + self.options.front_weight * front) - risk
        charged = chances * seconds + (1 - chances) * view.costs.seconds.misfit
        chosen = int(np.argmax(_per_second(worth, charged)))
        return self._run(places[chosen], gains[chosen], seconds[chosen], chances[chosen], differences[:, chosen])

    def _run(self, place: int, gain: float, seconds: float, chance: float, difference: Floats) -> Plan:
        faster = float(np.expm1(difference.mean()))
        return Plan(
            index=int(place),
            config=self.candidates.configs[place],
            expected_gain=float(chance * gain),
            expected_seconds=float(seconds),
            probability_fits=float(chance),
            why=f"expected {faster:+.1%} against the best so far (give or take {difference.std():.1%}), "
            f"fits with {chance:.0%}, about {seconds:.0f} s",
        )

    def _ended(self, view: _View, together: Floats) -> Plan | None:
        """The end, when everything left is not worth a run."""
        share, risk = self.options.stop_share, self.options.stop_risk
        expected, chance = float(together.mean()), float((together > share).mean())
        enough = sum(run.outcome == "completed" for run in view.seen) >= self.options.fewest_runs
        if not enough or expected >= share or chance > risk:
            return None
        left = int(view.free.sum())
        reason = (
            f"nothing left to gain: what is worth trying of the {left} configurations left could together be expected "
            f"to improve the best by {expected:.2%}, less than {share:.0%} (chance of more: {chance:.0%})"
        )
        return Plan(stop=reason, kind="nothing_to_gain", expected_gain=expected)

    def _shortlist(self, view: _View) -> Codes:
        """The free candidates with the best prospects: first roughly among all, then by what each may reach."""
        free = np.flatnonzero(view.free)
        rough = view.rates + np.sqrt(view.costs.unseen())
        wide = _top(free, (rough + _doubt(view.chances))[free], self.options.shortlist)
        high = view.costs.optimistic(wide) + _doubt(view.memory.refined(wide) * view.running[wide])
        return _top(wide, high, self.options.closest)

    def _first_fit(self, view: _View) -> Plan:
        """Nothing has fitted yet: the fastest of what probably does."""
        places = np.flatnonzero(view.free)
        order = np.argsort(-view.chances[places], kind="stable")[: self.options.shortlist]
        places = places[order]
        chances = view.memory.refined(places) * view.running[places]
        speed = np.exp(np.minimum(view.rates[places] - view.rates[places].max(), 0.0))
        worth = chances * (0.2 + speed) - (1 - chances) * NOTHING_YET_PENALTY
        chosen = int(np.argmax(worth))
        chance = float(chances[chosen])
        return Plan(
            index=int(places[chosen]),
            config=self.candidates.configs[places[chosen]],
            expected_gain=chance,
            expected_seconds=float(view.costs.seconds.expected[places[chosen]]),
            probability_fits=chance,
            why=f"nothing has fitted yet; this one does with {chance:.0%}",
        )

    def _exhausted(self, view: _View) -> Plan:
        tried = len(self.candidates) - int(self._unseen(view.seen, ()).sum())
        left_out = int((view.memory.refused & self._unseen(view.seen, ())).sum())
        tail = f"; {left_out} more certainly do not fit" if left_out else ""
        return Plan(stop=f"every configuration that can be tried has been tried ({tried}{tail})", kind="exhausted")

    def _front(self, view: _View) -> list[tuple[float, float]]:
        return [
            (run.throughput or 0.0, float(run.peak_memory_bytes))
            for run in view.seen
            if run.fits(self.limit_bytes) and run.peak_memory_bytes is not None
        ]

    def _most(self) -> float:
        """The memory axis' end."""
        known = self.candidates.predicted_peak_bytes
        if self.limit_bytes is not None:
            return float(self.limit_bytes)
        return float(np.nanmax(known)) if np.isfinite(known).any() else 1.0


def _per_second(worth: Floats, seconds: Floats) -> Floats:
    """What is worth nothing is not made better by being slow."""
    made: Floats = np.where(worth > 0, worth / seconds, worth)
    return made


def _doubt(chances: Floats) -> Floats:
    """What an unlikely fit takes off a prospect, in log throughput."""
    made: Floats = 0.3 * np.log(np.maximum(chances, 1e-3))
    return made


def _top(places: Codes, worth: Floats, most: int) -> Codes:
    """The most worthy of these, in their order."""
    if len(places) <= most:
        return places
    made: Codes = np.sort(places[np.argpartition(-worth, most)[:most]])
    return made


def _antithetic(chance: np.random.Generator, half: int, size: int) -> Floats:
    drawn = chance.standard_normal((half, size))
    return np.concatenate([drawn, -drawn])
