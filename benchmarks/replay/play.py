"""Plays every strategy on every table with every seed, in parallel processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from benchmarks.replay.grid import Table
from benchmarks.replay.oracle import Replay
from benchmarks.replay.result import Result, result_of
from benchmarks.replay.strategies import STRATEGIES, Strategy

SLOW_SHARE = 0.4
"""A slow strategy gets this share of the seeds (at least two)."""

Work = tuple[str, Table, int, tuple[Table, ...]]
"""Strategy, table, number of seeds, tables of other grids."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One strategy on one table."""

    strategy: str
    table: str


def play(
    tables: Sequence[Table],
    strategies: Sequence[Strategy],
    seeds: int,
    *,
    jobs: int,
    report: Callable[[str], None] = lambda _text: None,
) -> Mapping[Cell, tuple[Result, ...]]:
    """The results, by strategy and table, in the order of the seeds."""
    work = [
        (strategy.name, table, seeds_for(strategy, seeds), others_of(table, tables))
        for strategy in strategies
        for table in tables
    ]
    work.sort(key=lambda each: not _by_name(each[0]).slow)
    if jobs <= 1:
        return dict(_played(each, report) for each in work)
    with ProcessPoolExecutor(max_workers=jobs, initializer=one_thread) as pool:
        pending = {pool.submit(_searches, *each): each for each in work}
        found = {}
        for future in as_completed(pending):
            name, table, *_ = pending[future]
            found[Cell(strategy=name, table=table.name)] = future.result()
            report(f"{len(found)} of {len(work)}: {name} on {table.name}")
        return found


def seeds_for(strategy: Strategy, seeds: int) -> int:
    """How many seeds a strategy gets."""
    return min(seeds, max(2, int(seeds * SLOW_SHARE))) if strategy.slow else seeds


def others_of(table: Table, tables: Sequence[Table]) -> tuple[Table, ...]:
    """One table of each other grid on the same device with the same unit: where an earlier study may come from."""
    alike = (each for each in tables if (each.device, each.unit) == (table.device, table.unit))
    return tuple({each.grid: each for each in alike if each.grid != table.grid}.values())


def search_once(strategy: Strategy, table: Table, seed: int, others: Sequence[Table] = ()) -> Result:
    """One search."""
    replay = Replay(table, seed, others)
    strategy.search(replay)
    return result_of(replay)


def _played(work: Work, report: Callable[[str], None]) -> tuple[Cell, tuple[Result, ...]]:
    name, table, *_ = work
    report(f"{name} on {table.name}")
    return Cell(strategy=name, table=table.name), _searches(*work)


def _searches(name: str, table: Table, seeds: int, others: Sequence[Table]) -> tuple[Result, ...]:
    return tuple(search_once(_by_name(name), table, seed, others) for seed in range(seeds))


def _by_name(name: str) -> Strategy:
    return next(each for each in STRATEGIES if each.name == name)


def one_thread() -> None:
    """Keeps numpy and torch to one thread here, before they are imported: the processes share the cores."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
