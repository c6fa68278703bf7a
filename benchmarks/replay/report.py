"""The benchmark's answer: one JSON document, and a table for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks.replay.grid import Table
from benchmarks.replay.play import Cell
from benchmarks.replay.result import Result
from benchmarks.replay.scoring import Score, interval, score
from benchmarks.replay.strategies import Strategy

OURS = "auto"
OPTUNA_SHARE, PEER_SHARE = 1 / 5, 1 / 3
"""The targets: at most these shares of the best Optuna sampler's and of the best peer's score."""
FOUND = 0.01
Results = Mapping[Cell, tuple[Result, ...]]


@dataclass(frozen=True, kw_only=True)
class Played:
    """Everything that was played.

    Attributes:
        tables: In the order given.
        strategies: In their order.
        results: By strategy and table.
    """

    tables: Sequence[Table]
    strategies: Sequence[Strategy]
    results: Results

    def of(self, strategy: str) -> Mapping[str, tuple[Result, ...]]:
        """A strategy's results by table."""
        return {table.name: self.results[Cell(strategy=strategy, table=table.name)] for table in self.tables}

    def score(self, strategy: str) -> Score:
        """See :mod:`benchmarks.replay.scoring`."""
        seconds = {name: [each.seconds_to_hit for each in mine] for name, mine in self.of(strategy).items()}
        return score(seconds, {table.name: table.grid for table in self.tables})


def document(played: Played) -> dict[str, Any]:
    """What ``--json`` prints."""
    scores = {each.name: played.score(each.name) for each in played.strategies}
    return {
        "tables": [_table(table, played) for table in played.tables],
        "strategies": {each.name: _strategy(each, played, scores) for each in played.strategies},
        "targets": _targets(played, scores),
    }


def _table(table: Table, played: Played) -> dict[str, Any]:
    ours = next(iter(played.strategies)).name
    floors = [each.floor_seconds for each in played.of(ours)[table.name]]
    return {
        "table": table.name,
        "grid": table.grid,
        "device": table.device,
        "rows": len(table.rows),
        "feasible": len(table.feasible),
        "memory_limit_bytes": table.limit_bytes,
        "predictions": sum(row.predicted_bytes is not None for row in table.rows),
        "best_throughput": table.best.throughput,
        "best_config": dict(table.best.config),
        "hits": sum(table.is_hit(row) for row in table.rows),
        "run_spread": table.run_spread,
        "standard_error": table.standard_error,
        "within": table.tolerance,
        "seconds": table.seconds,
        "floor_seconds": median(floors),
    }


def _strategy(strategy: Strategy, played: Played, scores: Mapping[str, Score]) -> dict[str, Any]:
    mine, own = played.of(strategy.name), scores[strategy.name]
    flat = [result for results in mine.values() for result in results]
    ratio = {}
    if OURS in scores:
        drawn = scores[OURS].draws / own.draws
        ratio = {"score_ratio": scores[OURS].seconds / own.seconds, "score_ratio_interval": list(interval(drawn))}
    return {
        "kind": strategy.kind,
        "score": own.seconds,
        "score_interval": list(own.interval),
        **ratio,
        "seconds_to_1pct": _spread(flat, "seconds_to_hit") | {"by_table": _by_table(mine, "seconds_to_hit")},
        "hit_share": _share(each.hit for each in flat),
        "near_floor_share": _share(each.near_floor for each in flat),
        "seconds_to_stop": _spread(flat, "seconds_to_stop"),
        "regret_at_stop": _spread(flat, "regret_at_stop") | {"share_within": _within(mine, played.tables)},
        "answers_over_limit": sum(each.over_limit for each in flat),
        "oom_launches": _spread(flat, "oom_launches"),
        "runs_to_stop": _spread(flat, "asks"),
        "hypervolume": _spread(flat, "hypervolume"),
    }


def _within(mine: Mapping[str, Sequence[Result]], tables: Sequence[Table]) -> float:
    """Share of searches whose own answer is within the table's tolerance of the best."""
    return _share(each.regret_at_stop <= table.tolerance for table in tables for each in mine[table.name])


def _spread(results: Sequence[Result], field: str) -> dict[str, Any]:
    values = [getattr(each, field) for each in results]
    return {"median": median(values), "p95": float(np.quantile(values, 0.95)), "values": values}


def _by_table(mine: Mapping[str, Sequence[Result]], field: str) -> dict[str, float]:
    return {table: median(getattr(each, field) for each in results) for table, results in mine.items()}


def _share(flags: Any) -> float:
    found = [bool(each) for each in flags]
    return sum(found) / len(found)


def _targets(played: Played, scores: Mapping[str, Score]) -> dict[str, Any]:
    """Our score against the single best strategy of each kind over all tables."""
    if OURS not in scores:
        return {}
    flat = [result for results in played.of(OURS).values() for result in results]
    return {
        "best_optuna": _against(played, scores, ("optuna",), OPTUNA_SHARE),
        "best_other": _against(played, scores, ("peer",), PEER_SHARE),
        "tables_near_floor": {
            table: median(each.seconds_to_hit for each in mine) <= median(_allowed(each) for each in mine)
            for table, mine in played.of(OURS).items()
        },
        "oom_launches_median": median(each.oom_launches for each in flat),
        "regret_within_share": _within(played.of(OURS), played.tables),
        "answers_over_limit": sum(each.over_limit for each in flat),
    }


def _allowed(result: Result) -> float:
    return result.floor_seconds + result.allowance_seconds


def _against(played: Played, scores: Mapping[str, Score], kinds: Sequence[str], wanted: float) -> dict[str, Any] | None:
    rivals = [each.name for each in played.strategies if each.kind in kinds]
    if not rivals:
        return None
    best = min(rivals, key=lambda name: scores[name].seconds)
    ratio = scores[OURS].seconds / scores[best].seconds
    return {"strategy": best, "score": scores[best].seconds, "ratio": ratio, "wanted": wanted, "met": ratio <= wanted}
