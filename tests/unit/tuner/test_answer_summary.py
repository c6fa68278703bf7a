"""The documents of run, show, front and list."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_fakes import CAPACITY, FACTS, GIB, START, FakeStudy, fixture_1, limits_of, run_of, spec_of, trial_of

from objectives.knobs import facts_to_mapping
from storage.records import StudyRecord
from tuner.answer.notices import left_out
from tuner.answer.summary import front_json, list_json, summarise

KEYS = {
    "study", "status", "stop_reason", "objective", "device", "global_batch_size", "memory_limit_bytes", "counts",
    "seconds", "baseline", "best", "front", "speedup_over_baseline", "speedup_over_baseline_interval",
}  # fmt: skip
TRIAL_KEYS = {
    "number", "outcome", "cause", "config", "throughput", "throughput_unit", "throughput_interval", "peak_memory_bytes",
    "predicted_peak_memory_bytes", "seconds", "confirmed",
}  # fmt: skip
OUTCOMES = (
    "completed", "pruned", "device_oom", "numerical", "unsupported", "timeout", "host_oom", "shm", "crashed", "infra",
    "cancelled", None,
)  # fmt: skip


def study_record(**values) -> StudyRecord:
    made = {"status": "running", "spec": {}, "identity": {}, "created_at": START, **values}
    return StudyRecord(id=1, name="s", **made)


def test_every_promised_field_of_a_finished_study():
    study = FakeStudy(spec=spec_of(**CAPACITY, limits=limits_of(trials=20)), model=fixture_1(noise=0.02))
    study.search()
    study.confirm()
    summary = study.summary()
    assert set(summary) >= KEYS
    assert set(summary["best"]) == TRIAL_KEYS
    assert summary["best"]["config"]["accumulation_steps"] * summary["best"]["config"]["micro_batch_size"] == 5040
    low, high = summary["best"]["throughput_interval"]
    assert low < summary["best"]["throughput"] < high
    low, high = summary["speedup_over_baseline_interval"]
    assert low < summary["speedup_over_baseline"] < high
    assert summary["best"]["throughput_unit"] == "tokens_per_second"
    assert sum(summary["counts"].values()) == len(study.trials)
    assert summary["headroom_bytes"] > 0
    json.dumps(summary, allow_nan=False)


def test_an_empty_study_has_nulls_and_not_zeros():
    summary = summarise(study_record(status="queued"), [], [], spec_of())
    empty = ("device", "memory_limit_bytes", "baseline", "best", "speedup_over_baseline", "knee", "headroom_bytes")
    assert all(summary[key] is None for key in (*empty, "speedup_over_baseline_interval", "between_run_spread"))
    assert summary["front"] == []
    assert summary["counts"] == {}


def test_a_failed_trial_has_no_figures():
    trials = [trial_of(0, outcome="device_oom", cause="capacity", throughput=0.0, peak_memory_bytes=None)]
    baseline = summarise(study_record(), trials, [], spec_of())["baseline"]
    assert baseline["throughput"] is None
    assert baseline["throughput_interval"] is None
    assert baseline["peak_memory_bytes"] is None


def test_search_numbers_alone_name_no_winner():
    trials = [trial_of(0), trial_of(1, throughput=500.0)]
    runs = [run_of(1, 100.0, 0.0), run_of(2, 500.0, 10.0)]
    summary = summarise(study_record(memory_limit_bytes=2 * GIB), trials, runs, spec_of())
    assert summary["best"] is None
    assert [each["number"] for each in summary["front"]] == [1]
    assert "confirmed" in summary["notices"][0]


def test_refused_choices_are_told_with_their_reason():
    facts = {"facts": facts_to_mapping(FACTS)}
    spec = spec_of(search={"micro_batch_size": (3, 4), "attention": ("sdpa", "flash_attention_2")})
    refused = summarise(study_record(facts=facts), [], [], spec)["refused"]
    assert {"knob": "micro_batch_size", "value": "3"}.items() <= refused[-1].items()
    assert all(each["reason"] for each in refused)
    assert "attention" in {each["knob"] for each in refused}


def test_what_preparation_left_out_is_told_with_its_reasons_and_places():
    skipped = {"counts": {"empty": 2, "not JSON": 10}, "examples": ["a.jsonl:3: not JSON", "b.jsonl:1: empty"]}
    data = {"rows": 500, "skipped": skipped}
    told = summarise(study_record(facts={"data": data}), [], [], spec_of())["notices"]
    assert told == [
        "12 pieces of the data were left out (500 rows were kept): 10 x not JSON; 2 x empty. The first: "
        "a.jsonl:3: not JSON; b.jsonl:1: empty"
    ]
    for nothing in ({}, {"skipped": None}, {"skipped": {"counts": {}, "examples": []}}, {"rows": 3}):
        assert left_out(nothing) is None


def test_front_and_list_are_parts_of_it():
    trials, runs = [trial_of(0), trial_of(1, throughput=50.0)], [run_of(1, 100.0, 0.0), run_of(2, 50.0, 10.0)]
    document = front_json(study_record(), trials, runs, spec_of())
    assert document["study"] == "s"
    assert [each["number"] for each in document["trials"]] == [0]
    listed = list_json([summarise(study_record(), trials, runs, spec_of())])["studies"]
    assert listed[0]["study"] == "s"
    assert listed[0]["counts"] == {"completed": 2}


figures = st.one_of(st.none(), st.floats(0.0, 1e9, allow_nan=False))
rows = st.tuples(st.sampled_from(OUTCOMES), figures, st.one_of(st.none(), st.integers(0, 4 * GIB)))
windows = st.tuples(
    st.integers(1, 8),
    st.sampled_from(("search", "repeat", "confirm", "capability")),
    st.sampled_from(OUTCOMES),
    figures,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(rows, max_size=8), st.lists(windows, max_size=24), st.one_of(st.none(), st.just(2 * GIB)))
def test_any_mixture_of_rows_is_summed_up(given_trials, given_runs, limit):
    trials = [
        trial_of(number, outcome=outcome, throughput=speed, peak_memory_bytes=peak)
        for number, (outcome, speed, peak) in enumerate(given_trials)
    ]
    runs = [
        run_of(trial, speed, 10.0 * place, purpose, outcome=outcome)
        for place, (trial, purpose, outcome, speed) in enumerate(given_runs)
        if trial <= len(trials)
    ]
    summary = summarise(study_record(memory_limit_bytes=limit), trials, runs, spec_of())
    json.dumps(summary, allow_nan=False)
    if summary["best"] is not None:
        assert summary["best"]["confirmed"]
        assert summary["best"]["outcome"] == "completed"
        assert limit is None or summary["best"]["peak_memory_bytes"] <= limit
        if summary["baseline"]["confirmed"] and summary["speedup_over_baseline"] is not None:
            assert summary["speedup_over_baseline"] >= 1 - 1e-9


@pytest.mark.parametrize("status", ["finished", "failed", "cancelled"])
def test_the_status_is_the_studys(status):
    assert summarise(study_record(status=status, stop_reason="why"), [], [], spec_of())["status"] == status
