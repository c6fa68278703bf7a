"""The front's figure: every trial where it belongs, and text that stays text."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from pictures import GIB, row, some

from ui.charts.front import Choices, Picture, front_figure, heights, y_title
from ui.charts.thinning import MOST, strip_thinned, thinned
from ui.points import points_of
from ui.reported import Reported

LIMIT = 8 * GIB


def picture(**values: Any) -> Picture:
    reported = Reported(told={1: 310.0}, intervals={1: (280.0, 330.0), 2: (190.0, 210.0), 0: (90.0, 110.0)})
    made = {"points": some(), "limit_bytes": LIMIT, "front": (1, 2, 0), "winner": 1, "knee": 2, "reported": reported}
    return Picture(**{**made, **values})


def trace(figure: go.Figure, name: str) -> Any:
    return next(each for each in figure.data if each.name == name)


def numbers(figure: go.Figure) -> list[int]:
    return sorted(data[0] for each in figure.data if each.customdata is not None for data in each.customdata)


def test_every_trial_is_drawn_once() -> None:
    assert numbers(front_figure(picture(), Choices(colour="precision"))) == list(range(7))


def test_what_is_over_the_limit_is_hollow() -> None:
    found = trace(front_figure(picture(), Choices(colour="precision")), "fp32")
    by_number = dict(zip((data[0] for data in found.customdata), found.marker.symbol, strict=True))
    assert by_number == {0: "circle", 3: "circle", 4: "circle-open"}


def test_colour_and_shape_say_knobs_and_the_legend_names_both() -> None:
    figure = front_figure(picture(), Choices(colour="precision", shape="micro_batch_size"))
    groups = {each.legendgrouptitle.text for each in figure.data if each.legendgrouptitle.text}
    assert groups == {"precision", "micro_batch_size"}
    assert trace(figure, "fp32").marker.color != trace(figure, "bf16-mixed").marker.color
    assert len(set(trace(figure, "bf16-mixed").marker.symbol)) == 2


def test_the_front_is_a_staircase_with_its_intervals() -> None:
    line = trace(front_figure(picture(), Choices()), "front")
    assert list(line.x) == [2.0, 4.0, 6.0]
    assert list(line.y) == [100.0, 200.0, 310.0]
    assert line.line.shape == "hv"
    assert line.error_y.array == (10.0, 10.0, 20.0)
    assert line.error_y.arrayminus == (10.0, 10.0, 30.0)


def test_winner_baseline_and_knee_are_marked() -> None:
    figure = front_figure(picture(), Choices())
    for name, x in (("winner", 6.0), ("baseline", 2.0), ("knee", 4.0)):
        assert list(trace(figure, name).x) == [x]
        assert trace(figure, name).text == (name,)


def test_a_front_of_two_has_no_knee_to_show() -> None:
    figure = front_figure(picture(front=(1, 0), knee=1), Choices())
    assert "knee" not in {each.name for each in figure.data}


def test_out_of_memory_lies_where_it_was_predicted_else_at_the_limit() -> None:
    assert list(trace(front_figure(picture(), Choices()), "out of memory").x) == [12.0]
    unknown = points_of([row(0, 100.0, 7.0), row(1, outcome="device_oom")])
    assert list(trace(front_figure(picture(points=unknown, front=(0,)), Choices()), "out of memory").x) == [8.0]


def test_what_needs_far_more_than_was_measured_stands_at_the_edge_and_squeezes_nothing() -> None:
    points = points_of([row(0, 100.0, 2.0), row(1, outcome="device_oom", predicted_peak_memory_bytes=90 * GIB)])
    drawn = trace(front_figure(picture(points=points, front=(0,), winner=None), Choices()), "out of memory")
    assert list(drawn.x) == pytest.approx([1.4 * 2.8])
    assert "predicted 90.00 GiB" in str(drawn.customdata)


def test_the_strip_is_there_only_with_something_in_it() -> None:
    plain = points_of([row(0, 100.0, 2.0)])
    figure = front_figure(picture(points=plain, front=(0,), winner=None, knee=None), Choices())
    assert "yaxis2" not in figure.to_plotly_json()["layout"]
    assert front_figure(picture(), Choices()).layout.yaxis2.domain is not None


def test_the_limit_is_a_line_or_named_at_the_edge() -> None:
    near = front_figure(picture(), Choices())
    assert near.layout.shapes[0].x0 == 8.0
    far = front_figure(picture(limit_bytes=80 * GIB), Choices())
    assert not far.layout.shapes
    assert any("limit 80.00 GiB" in each.text for each in far.layout.annotations)


def test_small_memory_is_told_in_mebibytes() -> None:
    points = points_of([row(0, 100.0, 0.1)])
    figure = front_figure(picture(points=points, front=(0,), winner=None, limit_bytes=None), Choices())
    assert figure.layout.xaxis.title.text == "peak memory, MiB"
    assert list(trace(figure, "front").x) == pytest.approx([102.4], rel=1e-3)


def test_search_numbers_come_to_the_confirmations_level() -> None:
    found = heights(picture(reported=Reported(level=0.5, told={1: 310.0})), "throughput")
    assert found[:4].tolist() == [50.0, 310.0, 100.0, 75.0]
    assert heights(picture(ranks=2), "per_device")[1] == 155.0


def test_another_axis_shows_its_own_figures_and_no_front() -> None:
    figure = front_figure(picture(figures={0: 0.2, 1: 0.4}), Choices(y="mfu"))
    assert figure.layout.yaxis.title.text == y_title("mfu", "tokens_per_second")
    assert "front" not in {each.name for each in figure.data}
    drawn = trace(figure, "trials")
    assert sorted(drawn.y) == [0.2, 0.4]


def test_the_scale_can_be_logarithmic_without_the_strip() -> None:
    figure = front_figure(picture(), Choices(log=True))
    assert figure.layout.yaxis.type == "log"
    assert figure.layout.yaxis2.type != "log"


def test_the_hover_tells_the_whole_configuration() -> None:
    figure = front_figure(picture(), Choices(colour="precision"))
    template = trace(figure, "fp32").hovertemplate
    for knob in ("micro_batch_size", "precision", "attention sdpa", "accumulation_steps"):
        assert knob in template
    data = next(each for each in trace(figure, "bf16-mixed").customdata if each[0] == 1)
    assert "310 tokens/s" in data
    assert "6.00 GiB" in data
    assert "bf16-mixed" in data


def test_text_from_a_run_stays_text() -> None:
    bad = "<a href='javascript:alert(1)'>x</a>"
    rows = [row(0, 1.0, 1.0, config={"precision": bad}), row(1, 2.0, 1.0, cause=bad, config={"attention": bad})]
    figure = front_figure(picture(points=points_of(rows), front=(1,), winner=1), Choices(colour="precision"))
    assert "<a" not in json.dumps(figure.to_plotly_json(), default=lambda each: each.tolist())


def test_very_many_are_thinned_but_never_what_is_named() -> None:
    chance = np.random.default_rng(0)
    rows = [row(at, float(chance.uniform(50, 100)), float(chance.uniform(2, 6))) for at in range(5000)]
    points = points_of([*rows, row(5000, 200.0, 1.0)])
    kept = thinned(points, points.throughput, {0, 17, 5000}, ("precision", None))
    assert kept.sum() <= MOST + 3
    assert kept[[0, 17, 5000]].all()


def test_thinning_keeps_each_look_of_a_cell() -> None:
    rows = [row(at, 100.0, 2.0, config={"precision": "fp32" if at % 2 else "bf16-mixed"}) for at in range(3000)]
    points = points_of([*rows, row(3000, 1.0, 9.0)])
    kept = thinned(points, points.throughput, (), ("precision", None))
    assert {points.configs[at]["precision"] for at in np.flatnonzero(kept)} == {"fp32", "bf16-mixed"}


def test_few_are_all_drawn_and_a_full_strip_is_thinned() -> None:
    points = some()
    assert thinned(points, points.throughput, (), (None, None)).sum() == 5
    x = np.linspace(0, 1, 5000)
    assert len(strip_thinned(list(range(5000)), x)) < 600
    assert strip_thinned([1, 2], x) == [1, 2]


def test_an_empty_study_has_an_empty_figure() -> None:
    figure = front_figure(Picture(points=points_of([])), Choices())
    assert numbers(figure) == []
