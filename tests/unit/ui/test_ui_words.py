"""What stands in rows and tables: studies, trials side by side, explanations, evidence."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from storage.overview import StudyOverview
from storage.records import TrialRecord
from ui.parts import compare, listing, run_evidence, why
from ui.parts.front import numbers_of
from ui.parts.running import usual_seconds
from ui.parts.trial_page import batch_line, memory_rows
from ui.parts.trials import row as trial_row
from ui.points import points_of
from ui.reported import Reported

START = datetime(2026, 1, 1, tzinfo=UTC)


def study(id: int, name: str, **values: Any) -> StudyOverview:
    made = {
        "status": "finished", "device": "H200", "stop_reason": None, "seconds": 1.0, "version": 1, "priority": 0,
        "created_at": START, "submitted_at": None, "finished_at": None, "updated_at": START + timedelta(days=id),
        **values,
    }  # fmt: skip
    return StudyOverview(id=id, name=name, **made)


def trial(number: int, **values: Any) -> TrialRecord:
    made = {
        "config": {"precision": "fp32", "attention": "sdpa"}, "config_key": "k", "source": "auto",
        "outcome": "completed", "throughput": 100.0, "throughput_unit": "tokens_per_second", "created_at": START,
        **values,
    }  # fmt: skip
    return TrialRecord(id=number + 1, study_id=1, number=number, **made)


FOUND = (
    study(1, "Llama 1B", speedup=1.2, best_throughput=10.0),
    study(2, "gpt2", status="failed", device=None),
    study(3, "llama 8b", speedup=2.0, status="running", device="A100"),
)


def names(found: list[StudyOverview]) -> list[str]:
    return [each.name for each in found]


def test_a_search_needs_every_word_in_name_or_device() -> None:
    assert names(listing.matching(FOUND, text="LLAMA")) == ["Llama 1B", "llama 8b"]
    assert names(listing.matching(FOUND, text="llama a100")) == ["llama 8b"]
    assert names(listing.matching(FOUND, statuses=["failed", "running"])) == ["gpt2", "llama 8b"]
    assert names(listing.matching(FOUND, device="H200")) == ["Llama 1B"]


def test_studies_are_sorted_as_asked() -> None:
    assert names(listing.in_order(FOUND, "newest")) == ["llama 8b", "gpt2", "Llama 1B"]
    assert names(listing.in_order(FOUND, "name")) == ["gpt2", "Llama 1B", "llama 8b"]
    assert names(listing.in_order(FOUND, "speed-up"))[0] == "llama 8b"
    assert names(listing.in_order(FOUND, "nonsense")) == names(listing.in_order(FOUND, "newest"))
    assert listing.devices(FOUND) == ["A100", "H200"]


def test_rows_of_studies_read_well() -> None:
    one = replace(FOUND[0], counts={"completed": 1}, throughput_unit="tokens_per_second")
    assert listing.trials_text(one) == "1 trial"
    assert listing.trials_text(replace(one, counts={"completed": 1200})) == "1,200 trials"
    running = replace(one, status="running", trial_limit=40, counts={"completed": 24})
    assert listing.trials_text(running) == "24 of 40 trials"
    assert listing.trials_text(replace(running, open_trials=2)) == "24 of 40, 2 open"
    assert listing.best_text(one) == "10.0 tokens/s"
    assert listing.speedup_text(one) == "1.20x speed-up"
    assert listing.speedup_text(FOUND[1]) == ""


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(5, "just now"), (125, "2 min ago"), (7300, "2 h ago"), (90000, "1 day ago"), (200000, "2 days ago")],
)
def test_how_long_ago(seconds: float, said: str) -> None:
    assert listing.ago(seconds) == said


def test_side_by_side_tells_what_differs_apart_from_what_is_alike() -> None:
    other = trial(1, config={"precision": "bf16-mixed", "attention": "sdpa"}, peak_memory_bytes=2**30)
    differing, alike = compare.table([trial(0), other], Reported(level=0.5, told={1: 70.0}))
    rows = {each[" "]: (each["trial 0"], each["trial 1"]) for each in differing}
    assert rows["throughput"] == ("50.0 tokens/s", "70.0 tokens/s")
    assert rows["peak memory"] == ("-", "1.00 GiB")
    assert rows["precision"] == ("fp32", "bf16-mixed")
    assert "MFU" not in rows
    assert alike == [{"knob": "attention", "value": "sdpa"}]


def test_one_trial_alone_shows_all_its_knobs() -> None:
    differing, alike = compare.table([trial(0)], Reported())
    assert {"precision", "attention"} <= {each[" "] for each in differing}
    assert alike == []


def test_the_reported_throughput_is_the_answers_then_the_confirmations_then_the_searchs() -> None:
    confirmed = trial(0, confirmed=True, confirmed_throughput=90.0)
    assert Reported(told={0: 88.0}).of(confirmed) == 88.0
    assert Reported(level=0.5).of(confirmed) == 90.0
    assert Reported(level=0.5).of(trial(0)) == 50.0
    assert Reported().of(trial(0, throughput=None)) is None


def test_the_reported_ones_come_from_the_answers_document() -> None:
    told = {"number": 3, "throughput": 5.0, "throughput_interval": [4.0, 6.0]}
    found = Reported.of_answer({"front": [told], "best": told, "baseline": None, "search_level": 0.9})
    assert found.told == {3: 5.0}
    assert found.intervals == {3: (4.0, 6.0)}
    assert found.level == 0.9
    assert Reported.of_answer({}).level == 1.0


def test_a_row_of_the_table_keeps_figures_as_numbers() -> None:
    made = trial_row(trial(0, outcome="device_oom", cause="cap", throughput=None), points_of([]), Reported())
    assert made["outcome"] == "device oom: cap"
    assert made["throughput"] is None


STEP = {
    "knobs": [{"knob": "precision", "from": "fp32", "to": "bf16-mixed"}], "gain": 1.5, "gain_interval": [1.4, 1.6],
    "memory_bytes": -(2**30), "source": "measured", "trials": [0, 3],
}  # fmt: skip


def test_a_step_of_the_explanation_in_words() -> None:
    assert why.row(STEP) == {
        "change": "precision: fp32 → bf16-mixed", "gain": "1.50x", "95 % interval": "1.40 to 1.60",
        "memory": "-1.00 GiB", "known from": "measured between trials 0 and 3",
    }  # fmt: skip
    assert why.added(None) == "-"
    assert why.added(5) == "same"


def test_evidence_is_told_with_its_units() -> None:
    facts = {
        "peak_memory_bytes": 2**30, "setup_seconds": 0.5, "mfu": 0.4, "none": None, "ok": True,
        "memory": {"outside_bytes": 2**20}, "versions": {"torch": "2.13"},
    }  # fmt: skip
    told = dict(run_evidence.flat(facts))
    assert told == {
        "peak memory": "1.00 GiB", "setup": "500.0 ms", "mfu": "40.00 %", "memory: outside": "1 MiB",
        "versions: torch": "2.13", "ok": "true",
    }  # fmt: skip


def test_memory_by_category_predicted_and_measured() -> None:
    reserved = {"peak_allocated_bytes": 60, "peak_reserved_bytes": 80, "outside_bytes": 20}
    facts = {"predictions": {"k": {"categories": {"weights": 50, "activations": 0}}}}
    rows = memory_rows(facts, trial(0, metrics={"memory": reserved}, predicted_peak_memory_bytes=90))
    assert rows[0] == ("predicted", {"weights": 50.0})
    assert sum(rows[1][1].values()) == 100.0
    assert memory_rows({}, trial(0, peak_memory_bytes=7)) == [("measured", {"all": 7.0})]
    assert memory_rows({}, trial(0)) == []


@pytest.mark.case("B12")
def test_the_batch_is_four_numbers_and_their_product_is_checked() -> None:
    config = {"micro_batch_size": 4, "accumulation_steps": 8}
    said = batch_line(config, {"global_batch_size": 32})
    assert said == "Batch: 4 per device x 8 accumulated x 1 device = 32 samples"
    assert "NOT the study's global batch of 64" in batch_line(config, {"global_batch_size": 64})
    assert "NOT" not in batch_line(config, {"global_batch_size": None, "global_batch_tokens": 4096})
    launched = {"objective": {"settings": {"ranks": 2}}, "global_batch_size": 64}
    assert batch_line(config, launched) == "Batch: 4 per device x 8 accumulated x 2 devices = 64 samples"


def test_selected_points_are_trials_once_each() -> None:
    points = [{"customdata": [3, "x"]}, {"customdata": [1]}, {"customdata": [3]}, {"x": 1}]
    assert numbers_of(points) == [1, 3]


def test_the_usual_time_of_a_trial_is_the_middle_one() -> None:
    from pictures import row

    assert usual_seconds(points_of([])) is None
    assert usual_seconds(points_of([row(0, seconds=1.0), row(1, seconds=9.0), row(2, seconds=3.0)])) == 3.0
