"""The report is one file: everything in it, nothing from elsewhere, every word of a study escaped."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from doctor_studies import GIB, Tried, run, study

from tuner.doctor import CHECKS
from tuner.errors import TightfitError
from tuner.report import page, write
from tuner.report.chart import Axis, Point, front_chart, round_step
from tuner.report.html import Html, element, prose
from tuner.report.writing import default_path

EVIL = "<script>alert('x')</script>"
VIEW = study(
    Tried(knobs={"micro_batch_size": 1, "precision": "fp32"}, rate=500.0, said={"data_wait_share": 0.4}),
    Tried(knobs={"micro_batch_size": 8, "precision": "fp32"}, rate=900.0, peak=6.0),
    Tried(knobs={"micro_batch_size": 8, "precision": "bf16-mixed"}, rate=2000.0, peak=5.0),
    Tried(knobs={"micro_batch_size": 64}, outcome="crashed", rate=None, peak=None, evidence={"text": EVIL}),
    longer=[
        run("confirm", trial_id=number, at=300.0 + 10 * turn + number, throughput=1000.0 * number)
        for turn in range(3)
        for number in (1, 3)
    ],
)


class Reader(HTMLParser):
    """Notes every element and where its attributes point; checks that elements close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.targets: list[str] = []
        self.ids: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self._open.append(tag)
        self._note(attrs)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self._note(attrs)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def _note(self, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        self.targets += [value for name, value in attrs if name in ("src", "href", "action", "xlink:href")]


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    return reader


@pytest.mark.parametrize("view", [VIEW, study()], ids=["full", "empty"])
def test_it_asks_nobody_for_anything(view):
    text = page(view)
    found = read(text)
    assert found.targets == []
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(found.tags)
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src &#x27;none&#x27;" in text


def test_a_study_s_own_words_are_no_markup():
    named = study(Tried(), study=EVIL)
    assert EVIL not in page(VIEW)
    assert EVIL not in page(named)
    assert "&lt;script&gt;" in page(VIEW)


def test_the_answer_the_front_the_reasons_and_all_seven_checks_are_there():
    text = page(VIEW)
    assert {check.name for check in CHECKS} <= set(read(text).ids)
    assert "The winner: trial 2" in text
    assert "Throughput against peak memory of 3 trials" in text
    for check in CHECKS:
        assert check.title in text
    assert '<details id="batch_and_memory"' in text


def test_what_needs_a_change_stands_open_and_the_rest_closed():
    opened = {name: "open" in attributes for name, attributes in re.findall(r'<details id="(\w+)"([^>]*)>', page(VIEW))}
    assert opened["data_loading"]
    assert not opened["profiling"]


def point(rate: float, gib: float, **values) -> Point:
    return Point(throughput=rate, peak_bytes=int(gib * GIB), **{"on_front": True, "mark": "", "text": "t", **values})


def test_the_chart_draws_every_trial_and_the_front_as_steps():
    chart = front_chart(
        [point(100.0, 1.0), point(300.0, 2.0, mark="winner"), point(50.0, 3.0, on_front=False)], 4 * GIB, "u"
    )
    assert chart.count("<circle") == 3
    (corners,) = re.findall(r'points="([^"]+)"', chart)
    assert len(corners.split()) == 3  # two points of the front and the corner between them
    assert "limit 4.00 GiB" in chart
    assert "limit" not in front_chart([point(1.0, 0.01)], 4 * GIB, "u").replace('class="limit"', "")
    assert "No configuration" in front_chart([], None, "u")


@pytest.mark.parametrize(
    ("rough", "step"), [(0.9, 1.0), (1.0, 1.0), (1.01, 2.0), (23.0, 25.0), (0.03, 0.05), (7e6, 1e7)]
)
def test_ticks_are_round(rough, step):
    assert round_step(rough) == pytest.approx(step)
    ticks = Axis(low=0.0, high=rough * 5, start=0.0, end=1.0).ticks
    assert ticks[0] == 0.0
    assert 3 <= len(ticks) <= 6


def test_text_is_escaped_once_and_code_is_marked():
    assert element("p", "a < b", Html("<b>c</b>"), None, title='"q"') == '<p title="&quot;q&quot;">a &lt; b<b>c</b></p>'
    assert prose("run `tuner <x>` now") == "run <code>tuner &lt;x&gt;</code> now"
    assert prose("it's `odd") == "it&#x27;s `odd"


def test_it_writes_over_its_own_file_and_over_no_other(tmp_path: Path):
    file = tmp_path / "deep" / "r.html"
    assert write(page(VIEW), file) == file
    assert write(page(study()), file).read_text() == page(study())
    other = tmp_path / "notes.html"
    other.write_text("mine")
    with pytest.raises(TightfitError, match="--output"):
        write("x", other)
    with pytest.raises(TightfitError, match="--output"):
        write("x", tmp_path)
    assert other.read_text() == "mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["deep", "notes.html"]


@pytest.mark.parametrize(
    ("study_name", "file"), [("a/b c", "a-b-c.html"), ("..", "study.html"), ("run-1.2", "run-1.2.html")]
)
def test_the_file_s_name_is_the_study_s_as_far_as_a_file_can_be_called_so(study_name, file):
    assert default_path(study_name) == Path(file)
