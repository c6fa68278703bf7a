"""What ``tune`` returns: the batch finder's ladder, tables, pictures, safe HTML."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tuner.answer.picture import draw
from tuner.errors import TightfitError
from tuner.function.ladder import Ladder, descend, sentence, value_at
from tuner.function.result import Table, Tuned
from tuner.function.watching import Bar
from tuner.progress import Best, Confirming, StudyEnded, StudyStarted, TrialStarted

GIB = 2**30


def trial(number: int, micro: int, rate: float | None, **values: Any) -> dict[str, Any]:
    return {
        "number": number, "outcome": "completed", "throughput": rate, "throughput_unit": "samples_per_second",
        "throughput_interval": None if rate is None else [0.9 * rate, 1.1 * rate], "peak_memory_bytes": micro * GIB,
        "config": {"micro_batch_size": micro, "accumulation_steps": 8 // micro, "precision": "fp32"}, **values,
    }  # fmt: skip


def tuned(name: str = "mine", **values: Any) -> Tuned:
    base, best = trial(0, 1, 100.0), trial(1, 8, 400.0)
    document = {
        "study": name, "device": "a CPU", "counts": {"completed": 2}, "baseline": base, "best": best,
        "front": [best, base], "speedup_over_baseline": 4.0, "global_batch_size": 8, "stop_reason": None, **values,
    }  # fmt: skip
    ladders = (Ladder(factor=0.9, start=8, chosen=5, failures=4, throughput=300.0),)
    return Tuned(document=document, trials=(base, best), ladders=ladders)


@pytest.mark.case("B08")
@pytest.mark.parametrize(
    ("start", "most", "factor", "chosen", "failures"),
    [(128, 8, 0.9, 8, 22), (128, 8, 0.5, 8, 4), (32, 8, 0.9, 8, 10), (128, 100, 0.5, 64, 1), (128, 100, 0.9, 92, 3),
     (4, 0, 0.9, 0, 4), (16, 16, 0.9, 16, 0)],
)  # fmt: skip
def test_the_ladder_goes_down_until_one_fits(start: int, most: int, factor: float, chosen: int, failures: int) -> None:
    assert descend(start, factor, lambda size: size <= most) == (chosen, failures)


def test_a_curve_is_straight_between_and_beyond_known_sizes() -> None:
    curve = {1: 10.0, 4: 40.0, 8: 120.0}
    assert [value_at(curve, size) for size in (1, 2, 4, 6, 8, 10)] == [10.0, 20.0, 40.0, 80.0, 120.0, 160.0]
    assert value_at({4: 7.0}, 9) == 7.0


@pytest.mark.case("B07")
def test_the_batch_finder_is_compared_in_words() -> None:
    one = Ladder(factor=0.9, start=128, chosen=92, failures=3, throughput=300.0)
    said = sentence((one, Ladder(factor=0.5, start=128, chosen=64, failures=1)), 400.0, "samples_per_second")
    assert said == (
        "find_executable_batch_size, from 128 down, would have chosen a batch of 92 after 3 failed attempts, and "
        "trained with that instead of your global batch of 128, at about 300 samples/s, 25% slower than the winner. "
        "Halving would have ended at 64."
    )
    whole = Ladder(factor=0.9, start=8, chosen=8, failures=0, throughput=400.0, estimated=False)
    said = sentence((whole,), 400.0, "samples_per_second")
    assert "a batch of 8 at once, at 400 samples/s, as fast as the winner." in str(said)
    assert "no batch that fits" in (sentence((Ladder(factor=0.9, start=8, chosen=0, failures=9),), None, None) or "")
    assert sentence((), 1.0, None) is None


def test_the_front_is_a_table_of_plain_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    front = tuned().front
    assert [row["micro_batch_size"] for row in front] == [8, 1]
    assert "precision" not in front[0], "it is the same everywhere"
    assert "<td>400</td>" in front._repr_html_()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(TightfitError, match="pip install pandas"):
        front.to_pandas()


def test_html_and_pictures_hold_no_foreign_markup() -> None:
    name = "<script>alert(1)</script>"
    made = tuned(name)
    assert "<script>" not in made._repr_html_()
    assert "<script>" not in made.plot().svg
    assert "<b>" not in Table([{"<b>": "<b>"}])._repr_html_().replace("<tbody>", "")
    assert "winner" in made.plot()._repr_svg_()


def test_the_text_says_winner_speedup_and_what_a_finder_would_have_done() -> None:
    said = repr(tuned())
    for part in ("400 samples/s", "4.00x the baseline", "global batch 8 kept", "a batch of 5 after 4"):
        assert part in said
    assert tuned().config["accumulation_steps"] == 1


def test_without_a_winner_it_says_why() -> None:
    made = tuned(best=None, front=[], stop_reason="nothing fits")
    assert "nothing fits" in repr(made)
    assert (made.best, made.front, made.instead_of and "5" in made.instead_of) == (None, [], True)
    with pytest.raises(TightfitError, match="nothing fits"):
        _ = made.config
    assert made._repr_html_()


def test_a_picture_of_nothing_is_a_picture() -> None:
    assert draw("empty", [], [], None, None).startswith("<svg")
    assert draw("one", [trial(0, 1, None)], [], 0, None).startswith("<svg")


def test_the_bar_moves_forward_and_ends_full() -> None:
    drawn: list[tuple[float, str]] = []
    bar = Bar(lambda share, line: drawn.append((share, line)))
    bar(StudyStarted(study="x", objective="f", device="cpu", sampler="auto", trials=10, baseline={}))
    bar(TrialStarted(number=5, config={}))
    bar(Best(number=5, throughput=400.0, unit="samples_per_second"))
    bar(Confirming(round=2, rounds=2, number=5))
    bar(StudyEnded(study="x", status="finished"))
    shares = [share for share, _ in drawn]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert drawn[-1][1] == "done, best 400 samples/s"
