from __future__ import annotations

import pytest
from replay_tables import batches, knobs_grid, row_of, table_of

from benchmarks.replay.oracle import Replay
from benchmarks.replay.result import hypervolume, result_of
from benchmarks.replay.row import Run


def test_the_baseline_is_charged_before_anything_is_asked() -> None:
    replay = Replay(batches((1, 2, 4), lambda size: size < 4), seed=0)
    assert [seen.row.config["micro_batch_size"] for seen in replay.asks] == [1]
    assert replay.clock == 10.0


def test_every_run_is_charged_and_a_misfit_costs_its_own_seconds() -> None:
    replay = Replay(batches((1, 2, 4), lambda size: size < 4), seed=0)
    two, four = (replay.row({"micro_batch_size": size}) for size in (2, 4))
    assert two is not None
    assert four is not None
    seen = [replay.ask(row) for row in (two, two, four)]
    assert [each.seconds for each in seen] == [10.0, 10.0, 3.0]
    assert [each.outcome for each in seen] == ["completed", "completed", "device_oom"]
    assert (seen[2].throughput, seen[2].peak_bytes) == (None, None)
    assert replay.clock == 33.0


def test_the_first_hit_is_by_the_true_mean_not_by_what_was_read() -> None:
    lucky = row_of({"a": 1}, 90.0, runs=(Run(throughput=200.0, seconds=4.0), Run(throughput=200.0, seconds=4.0)))
    best = row_of({"a": 2}, 100.0)
    replay = Replay(table_of([lucky, best], baseline_knobs={"a": 1}), seed=0)
    assert replay.first.throughput == 200.0
    assert replay.hit_seconds is None
    replay.ask(best)
    assert replay.hit_seconds == pytest.approx(14.0)


def test_observations_come_from_the_repeated_runs_by_the_seed() -> None:
    row = row_of({"a": 1}, 100.0, runs=tuple(Run(throughput=speed, seconds=speed) for speed in (98.0, 100.0, 102.0)))
    table = table_of([row])
    seen = [Replay(table, seed).ask(row).throughput for seed in range(20)]
    assert set(seen) == {98.0, 100.0, 102.0}
    assert seen == [Replay(table, seed).ask(row).throughput for seed in range(20)]


def test_a_row_without_repeats_reads_with_the_table_s_error() -> None:
    repeated = row_of({"a": 1}, 50.0, runs=(Run(throughput=49.0), Run(throughput=51.0)))
    single = row_of({"a": 2}, 100.0)
    table = table_of([repeated, single], baseline_knobs={"a": 1})
    reads = {Replay(table, seed).ask(single).throughput for seed in range(9)}
    assert len(reads) == 9
    assert all(90 < (read or 0) < 110 for read in reads)


def test_order_noise_and_baseline_vary_with_the_seed() -> None:
    table = knobs_grid()
    replays = [Replay(table, seed) for seed in range(8)]
    assert len({tuple(row.key for row in replay.table.rows) for replay in replays}) == 8
    assert {replay.baseline.key for replay in replays[::2]} == {table.baseline.key}
    assert len({replay.baseline.key for replay in replays[1::2]}) > 1
    assert all(table.fits(replay.baseline) and not table.is_hit(replay.baseline) for replay in replays)


def test_a_run_that_is_stopped_pays_for_setup_and_the_steps_it_made() -> None:
    row = row_of({"a": 1}, 100.0, seconds=10.0, setup_seconds=2.0, step_seconds=(1.0,) * 8)
    replay = Replay(table_of([row]), seed=0)
    seen = replay.ask(row, lambda steps, peak: 55.0 if len(steps) == 3 and peak else None)
    assert (seen.outcome, seen.throughput, seen.step_seconds) == ("pruned", 55.0, (1.0, 1.0, 1.0))
    assert seen.seconds == pytest.approx(2.0 + 3.0)
    assert replay.ask(row, lambda _steps, _peak: None).seconds == 10.0


def test_what_a_run_spends_before_its_window_is_not_saved_by_stopping_it() -> None:
    row = row_of({"a": 1}, 100.0, seconds=14.0, setup_seconds=2.0, step_seconds=(1.0,) * 8)
    replay = Replay(table_of([row]), seed=0)
    assert replay.ask(row, steps=3).seconds == pytest.approx(14.0 - 5.0)


def test_a_stopped_run_is_no_hit_and_a_short_trial_is_one() -> None:
    slow, best = row_of({"a": 1}, 50.0), row_of({"a": 2}, 100.0, step_seconds=(1.0,) * 8)
    table = table_of([slow, best], baseline_knobs={"a": 1})
    pruned, short = Replay(table, seed=0), Replay(table, seed=0)
    pruned.ask(best, lambda _steps, _peak: 1.0)
    short.ask(best, steps=2)
    assert pruned.hit_seconds is None
    assert short.hit_seconds == pytest.approx(10.0 + 4.0)


def test_a_search_that_never_hits_is_charged_twice_the_table() -> None:
    replay = Replay(batches((1, 2, 4, 8), lambda size: size < 8), seed=0)
    replay.stop(replay.best_seen())
    result = result_of(replay)
    assert not result.hit
    assert result.seconds_to_hit == 2 * (30.0 + 3.0)
    assert result.seconds_to_stop == 10.0
    assert result.regret_at_stop == pytest.approx(0.75)


def test_floor_and_what_counts_until_the_strategy_s_own_stop() -> None:
    table = batches((1, 2, 4, 8), lambda size: size < 8)
    replay = Replay(table, seed=0)
    rows = {row.config["micro_batch_size"]: row for row in table.rows}
    replay.ask(rows[8])
    replay.stop(rows[1])
    replay.ask(rows[8])
    replay.ask(rows[4])
    result = result_of(replay)
    assert (result.oom_launches, result.asks, result.seconds_to_stop) == (1, 2, 13.0)
    assert (result.hit, result.seconds_to_hit, result.floor_seconds) == (True, 26.0, 20.0)
    assert result.near_floor
    assert result.curve == ((10.0, 0.75), (13.0, 0.75), (16.0, 0.75), (26.0, 0.0))


def test_an_answer_over_the_limit_is_told() -> None:
    table = batches((1, 2, 4), lambda size: size < 4)
    replay = Replay(table, seed=0)
    replay.stop(table.rows[2])
    result = result_of(replay)
    assert result.over_limit
    assert result.regret_at_stop == 1.0


def test_hypervolume_is_the_dominated_area() -> None:
    rows = [row_of({"a": 1}, 10.0, peak_mib=2), row_of({"a": 2}, 6.0, peak_mib=1), row_of({"a": 3}, 5.0, peak_mib=3)]
    mib = 2**20
    assert hypervolume(rows, 4 * mib) == pytest.approx((10 * 2 + 6 * 1) * mib)
    assert hypervolume([], 4 * mib) == 0.0
