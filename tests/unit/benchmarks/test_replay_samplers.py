from __future__ import annotations

from typing import Any

import pytest
from replay_tables import batches, knobs_grid, row_of, table_of

from benchmarks.replay.knob_values import values_of
from benchmarks.replay.oracle import Replay
from benchmarks.replay.strategies import nsga2, random, tpe
from benchmarks.replay.strategies.memory_filter import MemoryFilter, predicted_misfits
from benchmarks.replay.strategies.sampler_loop import TRIALS, SamplerLoop, _Loop


def played(loop: SamplerLoop, table: Any, seed: int = 0) -> Replay:
    replay = Replay(table, seed)
    loop(replay)
    return replay


@pytest.mark.parametrize("make", [random.make, tpe.make, nsga2.make])
@pytest.mark.parametrize("two_objectives", [True, False])
def test_a_sampler_never_pays_twice_and_goes_on_until_it_hits(make: Any, two_objectives: bool) -> None:
    replay = played(SamplerLoop(make_sampler=make, two_objectives=two_objectives), knobs_grid())
    keys = [seen.row.key for seen in replay.asks]
    assert len(keys) == len(set(keys))
    assert replay.hit_seconds is not None
    assert replay.halt is not None
    assert replay.halt.asks == min(TRIALS, 36)


def test_beyond_its_trials_a_sampler_goes_on_until_the_hit() -> None:
    table = batches(range(1, 120), lambda _size: True, lambda size: 1000.0 if size == 77 else 1.0)
    replay = played(SamplerLoop(make_sampler=random.make), table, seed=3)
    assert replay.halt is not None
    assert replay.halt.asks == TRIALS
    assert replay.asks[-1].row.config == {"micro_batch_size": 77} or replay.hit_seconds is not None
    assert len(replay.asks) <= 119


def test_a_failure_is_told_as_a_violated_constraint_or_as_fail() -> None:
    table = batches((1, 2, 4, 8), lambda size: size <= 2)
    for told, state in ((True, "COMPLETE"), (False, "FAIL")):
        replay = Replay(table, 0)
        loop = _Loop(SamplerLoop(make_sampler=random.make, failures_told=told), replay)
        loop._add(replay.ask(replay.table.by_key['{"micro_batch_size":8}']))
        trial = loop.study.trials[-1]
        assert trial.state.name == state
        assert trial.constraints == ({"fits": 1.0} if told else {})
        assert trial.values == ([0.0, float(table.limit_bytes or 0)] if told else None)


def test_one_objective_hears_of_throughput_alone() -> None:
    replay = Replay(knobs_grid(), 0)
    loop = _Loop(SamplerLoop(make_sampler=random.make, two_objectives=False), replay)
    assert len(loop.study.trials[0].values) == 1
    assert loop.study.trials[0].constraints["fits"] < 0


def test_combinations_that_the_table_lacks_are_never_asked() -> None:
    rows = [row_of({"a": a, "b": b}, 10.0 * a) for a in range(1, 7) for b in ("x", "y", None) if (a + len(str(b))) % 2]
    replay = played(SamplerLoop(make_sampler=random.make), table_of(rows))
    assert {seen.row.key for seen in replay.asks} == {row.key for row in rows}


def test_the_memory_filter_skips_certain_misfits_and_nothing_else() -> None:
    table = knobs_grid()
    replay = played(SamplerLoop(make_sampler=random.make, refuses=MemoryFilter()), table)
    assert not any(seen.outcome == "device_oom" for seen in replay.asks)
    skipped = predicted_misfits(replay)
    assert skipped
    assert not any(table.fits(row) for row in table.rows if row.key in skipped)


def test_the_memory_filter_works_on_unknown_knobs_and_without_predictions() -> None:
    unknown = knobs_grid(extra={"frobnicate": "yes"})
    assert predicted_misfits(Replay(unknown, 0))
    assert not predicted_misfits(Replay(knobs_grid(predicted=False), 0))


def test_numbers_are_searched_by_rank_and_words_as_they_are() -> None:
    values = values_of(table_of([row_of({"n": n, "w": w, "flag": f, "same": 1}) for n in (8, 1, 64) for w in "ab" for f in (True, False)]))  # fmt: skip # noqa: E501
    assert values.varying["n"] == (1, 8, 64)
    assert values.ordered == {"n"}
    assert "same" not in values.varying
    row = values.row({"n": 8, "w": "b", "flag": True})
    assert row is not None
    assert values.to_ranks(row) == {"n": 1, "w": "b", "flag": True}
    assert values.from_ranks(values.to_ranks(row)) == {"n": 8, "w": "b", "flag": True}
    assert values.distance(row, {"n": 64, "w": "a", "flag": True}) == pytest.approx(1 + 1 / 3)
