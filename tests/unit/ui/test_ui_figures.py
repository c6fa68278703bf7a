"""The other figures: best over time, outcomes, time and memory of a trial."""

from __future__ import annotations

import json

import pytest
from pictures import GIB, row, some

from ui.charts.look import colours_for, memory_scale, shapes_for
from ui.charts.progress import best_over_time, outcome_bars
from ui.charts.timelines import memory_bars, stage_bars, stage_seconds, step_lines
from ui.points import points_of


def test_the_best_rises_over_device_time_and_counts_only_what_fits() -> None:
    points = some()
    figure = best_over_time(points, points.throughput, 8 * GIB)
    line = next(each for each in figure.data if each.name == "best so far")
    assert line.y.tolist() == [100.0, 300.0, 300.0]
    assert line.x.tolist() == pytest.approx([10 / 60, 20 / 60, 70 / 60])
    assert len(next(each for each in figure.data if each.name == "trials").x) == 4


def test_long_studies_are_told_in_hours() -> None:
    points = points_of([row(0, 1.0, 1.0, seconds=9000.0)])
    assert best_over_time(points, points.throughput, None).layout.xaxis.title.text == "device time, hours"


@pytest.mark.parametrize("rows", [[], [row(0, outcome="device_oom")], [row(0, outcome=None)]])
def test_without_a_best_there_is_no_line(rows: list[tuple[object, ...]]) -> None:
    points = points_of(rows)
    figure = best_over_time(points, points.throughput, None)
    assert "best so far" not in {each.name for each in figure.data}


def test_outcomes_are_counted_with_their_causes() -> None:
    points = points_of([row(0), row(1), row(2, outcome="device_oom", cause="cap"), row(3, outcome=None)])
    found = {each.name: each.x[0] for each in outcome_bars(points).data}
    assert found == {"completed": 2, "device oom: cap": 1}


def test_a_cause_stays_text() -> None:
    points = points_of([row(0, outcome="crashed", cause="<img src=x>")])
    made = json.dumps(outcome_bars(points).to_plotly_json(), default=str)
    assert "<img" not in made


def test_steps_are_told_in_milliseconds() -> None:
    figure = step_lines([("search 1", (0.1, 0.2)), ("confirm 1", (0.3,))])
    assert [each.name for each in figure.data] == ["search 1", "confirm 1"]
    assert figure.data[0].y == pytest.approx((100.0, 200.0))


def test_stages_are_drawn_where_a_run_tells_them() -> None:
    measurement = {"setup_seconds": 1.5, "compile": {"seconds": 0.0}, "window_seconds": 3.0}
    figure = stage_bars([("search 1", measurement), ("repeat 1", {})])
    assert {each.name: each.x for each in figure.data} == {"set-up": (1.5, None), "measuring": (3.0, None)}
    assert stage_seconds(measurement, "compile") == 0.0
    assert stage_seconds({"compile": None}, "compile") is None


def test_memory_by_category_beside_the_limit() -> None:
    figure = memory_bars(
        [("predicted", {"weights": GIB, "activations": 2 * GIB}), ("measured", {"all": 3 * GIB})], 4 * GIB
    )
    assert {each.name: each.x for each in figure.data} == {"weights": (1, 0), "activations": (2, 0), "all": (0, 3)}
    assert figure.layout.shapes[0].x0 == 4
    assert not memory_bars([("measured", {"all": GIB})], 40 * GIB).layout.shapes


def test_numbers_have_one_scale_and_words_different_hues() -> None:
    ordered = list(colours_for((1, 2, 4, 8)).values())
    assert len(set(ordered)) == 4
    assert ordered[0] not in colours_for(("a", "b")).values()
    assert len(set(shapes_for(tuple(range(8))).values())) == 8


def test_memory_units_follow_the_size() -> None:
    assert memory_scale(GIB / 4)[1] == "MiB"
    assert memory_scale(GIB)[1] == "GiB"
