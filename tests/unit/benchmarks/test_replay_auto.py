from __future__ import annotations

from dataclasses import replace

import pytest
from replay_tables import knobs_grid, row_of, table_of

from benchmarks.replay.grid import Table
from benchmarks.replay.oracle import Replay
from benchmarks.replay.play import others_of
from benchmarks.replay.product import ProductStudy
from benchmarks.replay.product_space import knows, table_space
from benchmarks.replay.pruned import watched
from benchmarks.replay.row import Run
from benchmarks.replay.strategies import STRATEGIES
from benchmarks.replay.strategies.auto import Auto
from objectives.config import TrainingConfig
from tuner.search.noise import pooled_spread
from tuner.search.planner.observation import Earlier, Seen
from tuner.search.pruning import FrontPoint, PruningRule


def test_the_space_is_exactly_the_table() -> None:
    table = knobs_grid()
    space = table_space(replace(table, rows=table.rows[:20]))
    assert space.size == 20
    assert {space.row_of(key).key for key, _ in space.keyed()} == {row.key for row in table.rows[:20]}
    with pytest.raises(ValueError, match="no such configuration"):
        space.config({"micro_batch_size": 32, "precision": "bf16-mixed", "activation_checkpointing": "full"})
    assert TrainingConfig(micro_batch_size=3) not in space


def test_accumulation_follows_from_the_global_batch() -> None:
    space = table_space(knobs_grid())
    assert {config.micro_batch_size * config.accumulation_steps for config in space.configs()} == {64}


@pytest.mark.parametrize(
    "config", [{"micro_batch_size": 1, "frobnicate": 1}, {"micro_batch_size": "one"}, {"micro_batch_size": True}]
)
def test_what_the_product_cannot_hold_is_known(config: dict) -> None:
    assert not knows(table_of([row_of(config)]))


def test_two_rows_that_are_one_to_the_product_are_known() -> None:
    rows = [row_of({"micro_batch_size": 1, "loader_workers": 0, "prefetch_factor": n}) for n in (2, 4)]
    assert not knows(table_of(rows))
    assert knows(table_of(rows[:1]))


@pytest.mark.parametrize("table", [knobs_grid(), knobs_grid(predicted=False), knobs_grid(extra={"frobnicate": "yes"})])
@pytest.mark.parametrize("seed", [0, 1])
def test_auto_finds_the_best_and_stops_by_itself(table: Table, seed: int) -> None:
    replay = Replay(table, seed)
    Auto()(replay)
    assert replay.halt is not None
    assert table.is_hit(replay.halt.answer or replay.baseline)
    assert replay.halt.asks == len(replay.asks)


def test_every_run_of_the_study_is_charged_and_stored() -> None:
    replay = Replay(knobs_grid(), 0)
    study = ProductStudy(replay)
    study.search()
    assert len(study.runs) == len(replay.asks)
    assert sum(run.seconds for run in study.runs) == pytest.approx(replay.clock)
    assert {run.purpose for run in study.runs} <= {"search", "repeat", "confirm"}
    assert all(trial.outcome is not None for trial in study.trials)
    assert study.space.row_of(study.trials[0].config_key).key == replay.baseline.key


def test_a_certain_misfit_is_never_launched_twice_nor_anything_larger_of_its_family() -> None:
    for seed in range(2):
        replay = Replay(knobs_grid(limit_mib=120, predicted=False), seed)
        Auto()(replay)
        failed: dict[tuple, int] = {}
        for seen in replay.asks:
            config = dict(seen.row.config)
            size = config.pop("micro_batch_size")
            family = tuple(sorted(config.items()))
            assert size < failed.get(family, 10**9)
            if seen.outcome == "device_oom":
                failed[family] = size


@pytest.mark.parametrize("outcome", ["unsupported", "numerical", "timeout", "crashed", "host_oom", "infra", "strange"])
def test_auto_survives_rows_that_failed_in_any_way(outcome: str) -> None:
    table = knobs_grid()
    rows = tuple(
        replace(row, outcome=outcome, throughput=None) if number % 3 == 1 and row.key != table.baseline.key else row
        for number, row in enumerate(table.rows)
    )
    replay = Replay(replace(table, rows=rows), 0)
    Auto()(replay)
    assert replay.halt is not None


def test_one_configuration_left() -> None:
    table = knobs_grid()
    replay = Replay(replace(table, rows=(table.baseline,)), 0)
    Auto()(replay)
    assert replay.halt is not None
    assert replay.halt.answer is not None
    assert replay.halt.answer.key == table.baseline.key


def test_the_pruning_rule_stops_a_dominated_run_and_lets_a_good_one_end() -> None:
    row = row_of({"a": 1}, 50.0, peak_mib=200, seconds=20.0, setup_seconds=2.0, step_seconds=(1.0,) * 18)
    for rival, outcome in ((500.0, "pruned"), (55.0, "completed")):
        rule = PruningRule(
            front=[FrontPoint(throughput_low=rival, peak_bytes=100)],
            spread=pooled_spread([], "cpu"),
            window_seconds=18.0,
        )
        replay = Replay(table_of([row]), 0)
        seen = replay.ask(row, watched(rule, row))
        assert seen.outcome == outcome
        assert (seen.seconds < 20.0) == (outcome == "pruned")


def test_recorded_steps_belong_to_the_run_s_own_speed() -> None:
    row = row_of({"a": 1}, 100.0, runs=(Run(throughput=80.0), Run(throughput=120.0)), step_seconds=(1.0, 3.0))
    assert row.units_per_step == pytest.approx(160.0)


def test_ours_and_its_ablations_are_listed() -> None:
    assert [each.name for each in STRATEGIES if each.kind == "ours"] == ["auto"]
    ablations = {each.name for each in STRATEGIES if each.kind == "ablation"}
    assert {"auto without prediction", "auto without pruning"} <= ablations


def test_an_earlier_study_comes_from_another_grid_of_the_same_device_and_is_not_charged() -> None:
    mine = knobs_grid(300)
    other = replace(knobs_grid(500), name="other@1", grid="other")
    cut, elsewhere = replace(mine, name="hand@2"), replace(other, name="x", grid="x", device="NVIDIA H200")
    assert others_of(mine, [mine, cut, other, elsewhere]) == (other,)
    replay = Replay(mine, 0, (other,))
    Auto(transfers=True)(replay)
    assert replay.halt is not None
    assert mine.is_hit(replay.halt.answer or replay.baseline)
    assert {seen.row.key for seen in replay.asks} <= {row.key for row in mine.rows}


def test_a_study_takes_over_what_the_earlier_one_taught() -> None:
    past = Earlier(name="past", seen=[Seen(config={"micro_batch_size": 1}, outcome="completed", throughput=1.0)])
    study = ProductStudy(Replay(knobs_grid(), 0), earlier=[past])
    assert study._proposer.task.earlier == (past,)  # type: ignore[attr-defined]


def test_predicted_peaks_reach_the_product_and_the_ablation_takes_them_away() -> None:
    seeing, blind = (ProductStudy(Replay(knobs_grid(), 0), predicts=predicts) for predicts in (True, False))
    assert len(seeing._proposer.task.predicted_peak_bytes) == 36  # type: ignore[attr-defined]
    assert blind._proposer.task.predicted_peak_bytes == {}  # type: ignore[attr-defined]
    assert seeing.trials[0].predicted_peak_memory_bytes is not None
    assert blind.trials[0].predicted_peak_memory_bytes is None
