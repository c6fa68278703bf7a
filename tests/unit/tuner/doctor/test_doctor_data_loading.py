"""Mistake 5: each planted fault is found, its clean twin is not accused."""

from __future__ import annotations

from typing import Any

import pytest
from doctor_studies import Tried, check, figure, finding, run, study

from objectives.contract import ObjectiveReference

NAME = "data_loading"
MIB = 2**20


def capacities(**rates: float):
    answers = [
        {"settings": {"loader_workers": int(name[1:]), "prefetch_factor": 2, "pin_memory": False},
         "units_per_second": rate, "relative_standard_error": 0.02}
        for name, rate in rates.items()
    ]  # fmt: skip
    return run("loader_capacity", measurement={"capacities": answers})


@pytest.mark.case("E06")
def test_a_starved_device_is_advised_workers_and_not_a_batch():
    view = study(Tried(said={"data_wait_share": 0.5}), longer=[capacities(w0=1000.0, w1=1900.0, w4=4000.0)])
    found = finding(view, NAME, "stall")
    assert found.verdict == "improve"
    (advice,) = found.advice
    assert advice.knobs == {"loader_workers": 4}  # 2,000 a second are needed, and a tenth more
    assert "rather than another batch size" in advice.change
    assert advice.gain == pytest.approx(2.0)
    assert not advice.measured


def test_the_stall_of_a_gpu_is_the_comparison_and_not_the_host_s_own_wait():
    said = {"data_wait_share": 0.6, "data_stall_share": 0.01}
    assert check(study(Tried(said=said), device="cuda"), NAME).verdict == "fine"
    assert finding(study(Tried(said=said), device="cpu"), NAME, "stall").verdict == "improve"


def test_a_fed_device_is_not_accused():
    view = study(Tried(said={"data_wait_share": 0.01}), longer=[capacities(w0=4000.0)])
    assert check(view, NAME).verdict == "fine"
    assert figure(finding(view, NAME, "loader_capacity"), "needed") == pytest.approx(1010, abs=1)


def test_capacity_below_the_need_is_told_even_where_no_wait_was_seen():
    view = study(Tried(said={"data_wait_share": 0.0}), longer=[capacities(w0=1010.0)])
    assert finding(view, NAME, "loader_capacity").verdict == "improve"


def test_without_a_measurement_nothing_is_said():
    assert check(study(Tried()), NAME).verdict == "not_measured"
    assert finding(study(Tried()), NAME, "loader_capacity").verdict == "not_measured"


@pytest.mark.case("E01")
@pytest.mark.parametrize(("workers", "verdict"), [(12, "improve"), (2, "fine")])
def test_workers_against_the_cores_this_process_may_use(workers, verdict):
    found = finding(study(Tried(knobs={"loader_workers": workers}), machine={"cores": 2}), NAME, "workers_and_cores")
    assert found.verdict == verdict
    if verdict == "improve":
        assert found.advice[0].knobs == {"loader_workers": 2}


@pytest.mark.case("E12")
@pytest.mark.case("A22")
@pytest.mark.parametrize(("batch", "verdict"), [(8 * MIB, "broken"), (MIB, "fine")])
def test_ready_batches_against_shared_memory(batch, verdict):
    tried = Tried(knobs={"loader_workers": 8}, said={"batch_bytes": batch})
    found = finding(study(tried, machine={"shared_memory_bytes": 64 * MIB}), NAME, "shared_memory")
    assert found.verdict == verdict
    if verdict == "broken":
        assert "--shm-size" in found.advice[0].change


@pytest.mark.case("A22")
def test_a_trial_that_died_for_shared_memory_is_named():
    died = Tried(outcome="shm", rate=None, evidence={"text": "bus error"})
    assert finding(study(Tried(), died), NAME, "shared_memory").trials == (1,)


@pytest.mark.case("E03")
@pytest.mark.parametrize(("after", "verdict"), [(300 * MIB, "improve"), (205 * MIB, "fine")])
def test_copy_on_write_growth_of_the_workers(after, verdict):
    said = {"workers_bytes_before": 200 * MIB, "workers_bytes_after": after, "window_seconds": 8.0}
    assert finding(study(Tried(said=said)), NAME, "copy_on_write").verdict == verdict


@pytest.mark.parametrize(("first", "verdict"), [(0.3, "improve"), (0.012, "fine")])
def test_a_slow_first_pass(first, verdict):
    said = {"first_pass_wait_seconds": first, "later_pass_wait_seconds": 0.01, "median_step_seconds": 0.5}
    assert finding(study(Tried(said=said)), NAME, "first_pass").verdict == verdict
    assert finding(study(Tried(said={"data_passes": 0.2})), NAME, "first_pass").verdict == "not_measured"


def padded(share: float, grouped: float, **more: Any):
    return study(Tried(said={"padding_share": share, "grouped_padding_share": grouped}), **more)


def test_what_padding_costs_and_what_grouping_would_save():
    found = finding(padded(0.4, 0.1), NAME, "padding")
    assert found.verdict == "improve"
    (advice,) = found.advice
    assert advice.knobs == {"batching": "length-grouped"}
    assert advice.gain == pytest.approx(0.9 / 0.6)
    assert "up to" in advice.expected


def test_packing_is_promised_from_the_data_s_own_rows():
    objective = ObjectiveReference(kind="causal_lm", settings={"data": {"sequence_length": 100}})
    view = padded(0.4, 0.3, objective=objective, data={"mean_tokens_per_row": {"padded": 60.0, "packed": 97.0}})
    (advice,) = finding(view, NAME, "padding").advice
    assert advice.knobs == {"batching": "packed"}
    assert "global_batch_tokens" in advice.change


@pytest.mark.parametrize(("share", "grouped"), [(0.03, 0.0), (0.4, 0.39)])
def test_little_padding_or_little_to_save_is_fine(share, grouped):
    assert finding(padded(share, grouped), NAME, "padding").verdict == "fine"


def test_tokens_made_on_the_fly_against_cached_ones():
    texts = {"machine": {"workload_methods": frozenset({"set_tokens"})}}
    slow = study(Tried(), Tried(knobs={"tokens": "cached"}, rate=1500.0), **texts)
    assert finding(slow, NAME, "tokens").advice[0].knobs == {"tokens": "cached"}
    assert finding(study(Tried(), Tried(knobs={"tokens": "cached"}), **texts), NAME, "tokens").verdict == "fine"
    assert finding(study(Tried(), **texts), NAME, "tokens").verdict == "not_measured"


@pytest.mark.case("E10")
def test_host_memory_that_ran_out_is_the_loader_s_and_no_smaller_batch_is_advised():
    died = Tried(knobs={"loader_workers": 8}, outcome="host_oom", rate=None, evidence={"text": "killed"})
    found = finding(study(Tried(), died), NAME, "host_memory")
    assert found.trials == (1,)
    assert "loader_workers" in found.advice[0].change
    assert "micro" not in found.advice[0].change
    assert "host_memory" not in {each.name for each in check(study(Tried()), NAME).findings}
