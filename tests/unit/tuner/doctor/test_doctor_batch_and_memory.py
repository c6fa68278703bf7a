"""Mistake 1: each planted fault is found, its clean twin is not accused."""

from __future__ import annotations

import pytest
from doctor_studies import GIB, Tried, check, figure, finding, run, study

from objectives.contract import ObjectiveReference

NAME = "batch_and_memory"


def sizes(**rates: float) -> list[Tried]:
    """Trials of micro-batch sizes with their throughput; the first is the baseline."""
    known = {int(name[1:]): rate for name, rate in rates.items()}
    return [Tried(knobs={"micro_batch_size": size}, rate=rate, peak=0.2 * size) for size, rate in known.items()]


@pytest.mark.case("B08")
@pytest.mark.case("F05")
def test_the_largest_that_fits_is_not_the_fastest():
    found = finding(study(*sizes(m32=800.0, m16=1000.0, m8=700.0)), NAME, "largest_that_fits")
    assert found.verdict == "improve"
    assert "not the fastest" in found.statement
    (advice,) = found.advice
    assert advice.knobs == {"micro_batch_size": 16, "accumulation_steps": 4}
    assert advice.measured
    low, high = advice.gain_interval
    assert low < 1.25 < high
    assert found.runs


@pytest.mark.case("B07")
def test_a_small_batch_with_room_is_raised_and_the_global_batch_kept():
    view = study(*sizes(m1=300.0, m4=900.0, m16=1000.0))
    (advice,) = finding(view, NAME, "largest_that_fits").advice
    assert advice.knobs["micro_batch_size"] * advice.knobs["accumulation_steps"] == 64
    assert "the same" not in advice.change  # both batches stand there as numbers
    assert "= 64" in advice.change


@pytest.mark.parametrize("rates", [{"m16": 1000.0, "m8": 900.0, "m32": 960.0}, {"m8": 1000.0, "m16": 1010.0}])
def test_the_fastest_that_fits_is_not_accused(rates):
    assert finding(study(*sizes(**rates)), NAME, "largest_that_fits").verdict == "fine"
    assert check(study(*sizes(**rates)), NAME).verdict == "fine"


def test_one_size_alone_says_nothing_and_names_the_command():
    found = finding(study(Tried()), NAME, "largest_that_fits")
    assert found.verdict == "not_measured"
    assert "search.micro_batch_size" in found.measured_by
    searched = study(Tried(), search={"micro_batch_size": (4, 8)})
    assert "goes on" in finding(searched, NAME, "largest_that_fits").measured_by


def test_a_size_that_does_not_fit_is_never_advised():
    fits, over = Tried(knobs={"micro_batch_size": 8}), Tried(knobs={"micro_batch_size": 64}, rate=9000.0, peak=9.0)
    assert finding(study(fits, over), NAME, "largest_that_fits").verdict == "not_measured"


@pytest.mark.parametrize(
    "baseline",
    [Tried(outcome="device_oom", cause="capacity", rate=None, peak=None), Tried(peak=9.0)],
    ids=["out of memory", "over the limit"],
)
def test_a_baseline_that_does_not_fit_is_broken_and_the_winner_is_the_way_out(baseline):
    found = finding(study(baseline, Tried(knobs={"micro_batch_size": 4})), NAME, "distance_to_limit")
    assert found.verdict == "broken"
    assert found.advice[0].knobs["micro_batch_size"] == 4


def test_how_far_both_stand_from_the_limit():
    view = study(*sizes(m1=300.0, m16=1000.0))
    found = finding(view, NAME, "distance_to_limit")
    assert figure(found, "headroom", "baseline") == pytest.approx(7.8 * GIB, abs=2)
    assert figure(found, "headroom of the limit", "winner") == pytest.approx(0.6, abs=1e-6)


def test_where_the_edge_is_and_how_that_is_known():
    searched = {"search": {"micro_batch_size": (8, 16, 32, 64)}}
    fits = [
        Tried(knobs={"micro_batch_size": 8}, peak=2.0),
        Tried(knobs={"micro_batch_size": 16}, peak=4.0, rate=1500.0),
    ]
    measured = Tried(knobs={"micro_batch_size": 32}, outcome="device_oom", cause="capacity", rate=None, peak=None)
    known = finding(study(*fits, measured, **searched), NAME, "edge")
    assert (figure(known, "largest micro-batch that fits"), figure(known, "known from")) == (16, "measured")
    line = finding(study(*fits, **searched, limit_gib=9.0), NAME, "edge")
    assert (figure(line, "largest micro-batch that fits"), figure(line, "known from")) == (32, "interpolated")
    assert figure(line, "peak memory of the next size") == 16 * GIB
    assert finding(study(Tried(), **searched), NAME, "edge").verdict == "not_measured"


def test_the_edge_is_predicted_where_predictions_are():
    from objectives.config import TrainingConfig
    from objectives.knobs import config_key

    keys = {size: config_key(TrainingConfig(micro_batch_size=size)) for size in (8, 16, 32, 64)}
    predictions = {key: {"peak_memory_bytes": size * GIB // 4} for size, key in keys.items()}
    view = study(Tried(peak=2.0), predictions=predictions, search={"micro_batch_size": (8, 16, 32, 64)}, limit_gib=9.0)
    found = finding(view, NAME, "edge")
    assert (figure(found, "largest micro-batch that fits"), figure(found, "known from")) == (32, "predicted")


@pytest.mark.case("D01")
def test_which_length_the_peak_was_measured_with():
    objective = ObjectiveReference(kind="causal_lm", settings={"data": {"sequence_length": 4096}})
    view = study(Tried(), objective=objective, data={"longest_row": 2048})
    found = finding(view, NAME, "longest_sequence")
    assert "never tried" in found.statement
    assert (figure(found, "longest row"), figure(found, "sequence length of the spec")) == (2048, 4096)


@pytest.mark.case("D09")
def test_evaluation_that_does_not_fit_is_told_apart_from_training():
    failed = run("confirm", trial_id=1, outcome="device_oom", evidence={"phase": "eval", "text": "out of memory"})
    found = finding(study(Tried(), longer=[failed]), NAME, "evaluation")
    assert found.verdict == "broken"
    assert "per_device_eval_batch_size" in found.advice[0].change
    done = run("confirm", trial_id=1, throughput=1000.0, measurement={"evaluation_memory": {"peak_memory_bytes": GIB}})
    assert finding(study(Tried(), longer=[done], device="cuda"), NAME, "evaluation").verdict == "fine"
    assert finding(study(Tried()), NAME, "evaluation").verdict == "not_measured"


@pytest.mark.case("H10")
@pytest.mark.parametrize(
    "bad",
    [Tried(memory={"swap_bytes": GIB}), Tried(outcome="device_oom", cause="spill", rate=None)],
    ids=["swap", "spill"],
)
def test_memory_that_went_where_it_is_slow(bad):
    assert finding(study(Tried(memory={"swap_bytes": 0}), bad), NAME, "spill").verdict == "improve"
    assert finding(study(Tried(memory={"swap_bytes": 0})), NAME, "spill").verdict == "fine"
