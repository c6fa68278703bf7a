"""The peers' steps, as PEERS.md tells them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from replay_tables import MIB, batches, knobs_grid, row_of, table_of

from benchmarks.replay.grid import Table
from benchmarks.replay.oracle import Replay
from benchmarks.replay.strategies import (
    accelerate,
    autobatch,
    composer,
    deepspeed,
    determined,
    flagscale,
    grid,
    lightning,
    ludwig,
)
from benchmarks.replay.strategies.flagscale import Entry, FlagScale, ruled_out
from benchmarks.replay.strategies.ladder import Climb, Ladder, beside


def climbed(climb: Climb, table: Table, seed: int = 0) -> tuple[list[int], Replay]:
    """Sizes asked after the baseline, and the search."""
    replay = Replay(table, seed)
    beside(climb, "baseline")(replay)
    return [seen.row.config["micro_batch_size"] for seen in replay.asks[1:]], replay


def answer(replay: Replay) -> int | None:
    assert replay.halt is not None
    return None if replay.halt.answer is None else replay.halt.answer.config["micro_batch_size"]


@pytest.mark.parametrize(
    ("climb", "start", "fitting", "failures"),
    [
        (accelerate.nine_tenths, 128, 8, 22),
        (accelerate.halving, 128, 8, 4),
        (accelerate.nine_tenths, 32, 8, 10),
        (accelerate.halving, 32, 8, 2),
        (composer.halving, 128, 8, 4),
    ],
)
def test_the_cost_of_the_shrinking_ladders(climb: Climb, start: int, fitting: int, failures: int) -> None:
    asked, replay = climbed(climb, batches(range(1, start + 1), lambda size: size <= fitting))
    assert sum(seen.outcome == "device_oom" for seen in replay.asks) == failures
    assert asked[0] == start
    assert asked[-1] == answer(replay)
    assert (answer(replay) or 0) <= fitting


def test_accelerate_stops_at_zero_without_an_answer() -> None:
    rows = [row_of({"micro_batch_size": size, "x": 1}, None) for size in (1, 2, 4)] + [
        row_of({"micro_batch_size": 1, "x": 2})
    ]
    ladder = Ladder(Replay(table_of(rows), 0), rows[0])
    assert accelerate.nine_tenths(ladder) is None
    assert composer.halving(ladder) is None


def test_lightning_doubles_then_halves_once() -> None:
    asked, replay = climbed(lightning.power, batches((1, 2, 4, 8, 16, 32), lambda size: size <= 8))
    assert asked == [2, 4, 8, 16]
    assert answer(replay) == 8


def test_lightning_bisects_and_keeps_a_margin() -> None:
    asked, replay = climbed(lightning.binsearch, batches(range(1, 65), lambda size: size <= 21))
    assert asked == [2, 4, 8, 16, 32, 24, 20, 22, 21]
    assert answer(replay) == 19


def test_lightning_stops_at_the_largest_size() -> None:
    for climb in (lightning.power, lightning.binsearch):
        asked, replay = climbed(climb, batches((1, 2, 4, 6), lambda _size: True))
        assert asked == [2, 4, 6]
        assert answer(replay) == 6


def test_a_size_that_the_table_lacks_means_the_nearest_by_ratio() -> None:
    ladder = Ladder(Replay(batches((1, 4, 16), lambda _size: True), 0), row_of({"micro_batch_size": 1}))
    assert [ladder.row(size).config["micro_batch_size"] for size in (0, 1, 2, 3, 8, 9, 100)] == [1, 1, 1, 4, 4, 16, 16]


def test_the_baseline_s_run_is_not_paid_twice_but_a_second_try_is() -> None:
    asked, replay = climbed(accelerate.halving, batches((2, 4, 8), lambda size: size == 2))
    assert asked == [8, 4]
    assert replay.clock == 10 + 3 + 3
    assert answer(replay) == 2


def test_ludwig_stops_at_the_first_drop() -> None:
    speeds = {1: 1.0, 2: 2.0, 4: 3.0, 8: 2.5, 16: 9.0}
    asked, replay = climbed(ludwig.doubling, batches(speeds, lambda _size: True, speeds.__getitem__))
    assert asked == [2, 4, 8]
    assert answer(replay) == 4


def test_ludwig_stops_at_out_of_memory() -> None:
    asked, replay = climbed(ludwig.doubling, batches((1, 2, 4, 8, 16), lambda size: size <= 4))
    assert asked == [2, 4, 8]
    assert answer(replay) == 4


def test_autobatch_solves_for_sixty_per_cent_of_the_limit() -> None:
    table = batches(range(1, 65), lambda size: size <= 40)
    asked, replay = climbed(autobatch.solve, Table(**{**table.__dict__, "limit_bytes": 40 * MIB}))
    assert asked == [2, 4, 8, 16, 32, 64]
    assert answer(replay) == 24


def test_autobatch_stays_below_the_first_size_that_failed() -> None:
    table = batches((1, 2, 4, 8, 16, 32), lambda size: size <= 4)
    _, replay = climbed(autobatch.solve, Table(**{**table.__dict__, "limit_bytes": 40 * MIB}))
    assert answer(replay) == 4


def test_deepspeed_tries_above_at_and_below_the_calculated_largest() -> None:
    table = batches(range(1, 65), lambda size: size <= 38)
    asked, replay = climbed(deepspeed.fast, Table(**{**table.__dict__, "limit_bytes": 40 * MIB}))
    assert asked[:3] == [42, 40, 38]
    assert asked[3:6] == [19, 25, 31]  # three strides from half of the largest
    assert answer(replay) == 38


def test_deepspeed_bisects_when_none_of_the_three_runs() -> None:
    table = batches(range(1, 65), lambda size: size <= 20)
    asked, replay = climbed(deepspeed.fast, Table(**{**table.__dict__, "limit_bytes": 40 * MIB}))
    assert asked[:4] == [42, 40, 38, 20]
    assert answer(replay) == 20


def test_flagscale_s_rules() -> None:
    ran = Entry(others="x", size=4, recompute=0, ran=True)
    assert ruled_out(Entry(others="x", size=2, recompute=0), [ran]) == (True, False)  # a larger one ran
    assert ruled_out(Entry(others="x", size=4, recompute=2), [ran]) == (True, False)  # it ran without recomputation
    assert ruled_out(Entry(others="x", size=8, recompute=0), [ran]) is None
    assert ruled_out(Entry(others="y", size=2, recompute=0), [ran]) is None
    out = Entry(others="x", size=4, recompute=2, oom=True)
    assert ruled_out(Entry(others="x", size=8, recompute=2), [out]) == (False, True)  # a smaller one ran out
    assert ruled_out(Entry(others="x", size=4, recompute=0), [out]) == (False, True)  # it ran out with recomputation
    assert ruled_out(Entry(others="x", size=8, recompute=0), [out]) == (False, True)  # both
    assert ruled_out(Entry(others="x", size=2, recompute=0), [out]) is None


def test_flagscale_s_orders() -> None:
    for order, first in (("memory", (1, "full")), ("performance", (32, "none"))):
        replay = Replay(knobs_grid(limit_mib=2000), seed=0)
        FlagScale(order=order)(replay)
        config = replay.asks[1].row.config
        assert (config["micro_batch_size"], config["activation_checkpointing"]) == first


def test_flagscale_s_performance_order_trusts_that_larger_is_faster() -> None:
    table = batches((1, 2, 4, 8), lambda _size: True, lambda size: {1: 1.0, 2: 9.0, 4: 3.0, 8: 2.0}[size])
    replay = Replay(table, seed=0)
    FlagScale(order="performance")(replay)
    assert [seen.row.config["micro_batch_size"] for seen in replay.asks] == [1, 8]
    assert answer(replay) == 8


def test_flagscale_never_launches_what_its_history_rules_out() -> None:
    replay = Replay(batches((1, 2, 4, 8, 16), lambda size: size <= 2), seed=0)
    FlagScale(order="memory")(replay)
    assert [seen.row.config["micro_batch_size"] for seen in replay.asks] == [1, 2, 4]


def test_the_grid_runs_everything_once() -> None:
    table = knobs_grid()
    replay = Replay(table, seed=1)
    grid.search(replay)
    assert sorted(seen.row.key for seen in replay.asks) == sorted(row.key for row in table.rows)


def test_asha_bisects_lineages_and_prolongs_the_better_half() -> None:
    replay = Replay(knobs_grid(), seed=0)
    determined.asha(replay)
    assert len(replay.asks) <= determined.TRIALS
    assert {
        (seen.row.config["precision"], seen.row.config["activation_checkpointing"]) for seen in replay.asks[1:]
    } == {(precision, kind) for precision in ("fp32", "bf16-mixed") for kind in ("none", "selective", "full")}


def test_a_lineage_moves_up_after_what_runs_and_down_after_what_fails() -> None:
    table = batches(range(1, 17), lambda size: size <= 10)
    lineage = determined.Lineage(Replay(table, 0), table.rows[0])
    lineage.rung = 4
    lineage.spend(99)
    assert [seen.row.config["micro_batch_size"] for seen in lineage.ladder.replay.asks[1:]] == [8, 12, 10, 11]
    assert lineage.over


@pytest.mark.parametrize("climb", [lightning.power, accelerate.halving, ludwig.doubling])
def test_with_the_best_knobs_a_ladder_stands_beside_the_best_row(climb: Callable[[Ladder], object]) -> None:
    replay = Replay(knobs_grid(), seed=0)
    beside(climb, "best")(replay)  # type: ignore[arg-type]
    best = replay.table.best.config
    assert all(
        seen.row.config[name] == best[name]
        for seen in replay.asks[1:]
        for name in ("precision", "activation_checkpointing")
    )


def test_entries_name_their_recomputation() -> None:
    assert flagscale.NONE_FIRST == {"none": 0, "selective": 1, "full": 2}
