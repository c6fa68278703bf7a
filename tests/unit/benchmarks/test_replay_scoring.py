from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from replay_tables import knobs_grid

from benchmarks.replay.grid import Table
from benchmarks.replay.play import play, seeds_for
from benchmarks.replay.plot import draw
from benchmarks.replay.report import Played, document
from benchmarks.replay.scoring import score
from benchmarks.replay.strategies import BATCH_ONLY, STRATEGIES
from benchmarks.replay.text import render

CHEAP = ("auto", "random", "nemo grid", "accelerate halving", "accelerate halving + best knobs")


def named(*names: str) -> list:
    return [each for each in STRATEGIES if each.name in names]


def cut(limit_mib: int) -> Table:
    return Table(**{**knobs_grid(limit_mib).__dict__, "name": f"hand@{limit_mib}", "grid": "hand"})


@pytest.fixture(scope="module")
def played() -> Played:
    tables = [cut(300), cut(500)]
    strategies = named(*CHEAP)
    return Played(tables=tables, strategies=strategies, results=play(tables, strategies, 2, jobs=1))


def test_cuts_of_one_grid_are_averaged_first() -> None:
    values = {"a@1": [100.0], "a@2": [400.0], "b": [50.0]}
    grids = {"a@1": "a", "a@2": "a", "b": "b"}
    assert score(values, grids).seconds == pytest.approx(np.sqrt(200 * 50))
    assert score({"a@1": [100.0, 1.0, 300.0]}, {"a@1": "a"}).seconds == pytest.approx(100)


def test_the_interval_holds_the_score_and_grows_with_the_noise() -> None:
    calm, wild = (
        score({"a": [100.0 * (1 + spread * (n % 5 - 2)) for n in range(20)]}, {"a": "a"}) for spread in (0.01, 0.4)
    )
    assert calm.interval[0] <= calm.seconds <= calm.interval[1]
    assert calm.interval[1] - calm.interval[0] < wild.interval[1] - wild.interval[0]


def test_the_document_has_the_design_s_fields(played: Played) -> None:
    told = json.loads(json.dumps(document(played)))
    assert [table["table"] for table in told["tables"]] == ["hand@300", "hand@500"]
    assert told["tables"][0]["within"] == 0.01
    for name in CHEAP:
        mine = told["strategies"][name]
        assert mine["score"] > 0
        assert mine["score_ratio"] == pytest.approx(told["strategies"]["auto"]["score"] / mine["score"])
        assert len(mine["seconds_to_1pct"]["values"]) == 2 * 2
        for field in ("seconds_to_1pct", "seconds_to_stop", "regret_at_stop", "oom_launches", "hypervolume"):
            assert set(mine[field]) >= {"median", "values"}
        low, high = mine["score_interval"]
        assert low <= high
    assert told["strategies"]["auto"]["score_ratio"] == 1.0


def test_rivals_are_the_single_best_over_all_tables_without_the_informed(played: Played) -> None:
    told = document(played)
    assert told["targets"]["best_optuna"]["strategy"] == "random"
    peers = {name: told["strategies"][name]["score"] for name in ("nemo grid", "accelerate halving")}
    assert told["targets"]["best_other"]["strategy"] == min(peers, key=peers.__getitem__)
    assert set(told["targets"]["tables_near_floor"]) == {"hand@300", "hand@500"}


def test_the_grid_launches_every_misfit_and_ends_with_everything_found(played: Played) -> None:
    grid = document(played)["strategies"]["nemo grid"]
    misfits = [sum(not table.fits(row) for row in table.rows) for table in played.tables]
    assert grid["oom_launches"]["values"] == [misfits[0]] * 2 + [misfits[1]] * 2
    assert grid["hypervolume"]["values"] == pytest.approx([1.0] * 4)
    assert grid["hit_share"] == 1.0


def test_the_table_for_people_names_every_strategy_and_what_found_means(played: Played) -> None:
    text = render(document(played))
    assert all(name in text for name in CHEAP)
    assert "within 1.0% of the best" in text


def test_without_auto_there_is_no_ratio_and_no_target() -> None:
    strategies = named("random")
    alone = Played(tables=[cut(500)], strategies=strategies, results=play([cut(500)], strategies, 2, jobs=1))
    told = document(alone)
    assert told["targets"] == {}
    assert "score_ratio" not in told["strategies"]["random"]
    assert "random" in render(told)


def test_the_picture_is_readable_on_light_and_dark(played: Played) -> None:
    picture = ET.fromstring(draw(played))
    texts = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "auto" in texts
    assert "accelerate halving + best knobs" not in texts
    assert not list(picture.iter("{http://www.w3.org/2000/svg}rect"))
    assert "#ffffff" not in draw(played)


def test_every_strategy_is_listed_once_and_slow_ones_get_fewer_seeds() -> None:
    names = [each.name for each in STRATEGIES]
    assert len(names) == len(set(names))
    assert {f"{name} + best knobs" for name, _ in BATCH_ONLY} <= set(names)
    slow = next(each for each in STRATEGIES if each.slow)
    assert seeds_for(slow, 20) == 8
    assert seeds_for(slow, 3) == 2
    assert seeds_for(STRATEGIES[0], 20) == 20
