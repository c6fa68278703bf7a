"""Which trial is handed over, what travels with it, and what is refused."""

from __future__ import annotations

import pytest
from handovers import handover_of
from search_fakes import CAPACITY, GIB, START, FakeStudy, fixture_1, limits_of, run_of, spec_of, trial_of

from objectives.config import TrainingConfig
from objectives.contract import ObjectiveReference
from storage.records import StudyRecord
from tuner.answer.summary import StudyView
from tuner.export.choose import NothingToExport, choose
from tuner.export.handover import ExportRefused, for_ranks, require_exact
from tuner.spec.quantities import SIZES


def view_of(trials, runs=(), spec=None, **study) -> StudyView:
    made = {"status": "finished", "spec": {}, "identity": {}, "created_at": START, **study}
    record = StudyRecord(id=1, name="s", **made)
    return StudyView(study=record, trials=trials, runs=list(runs), spec=spec or spec_of(global_batch_size=8))


def config_of(micro: int, **values) -> TrainingConfig:
    return TrainingConfig(micro_batch_size=micro, accumulation_steps=8 // micro, **values)


def three() -> StudyView:
    """A front of three: fast and large, a knee, slow and small; and one that a limit of 4 GiB leaves out."""
    trials = [
        trial_of(0, config_of(1), throughput=50.0, peak_memory_bytes=GIB),
        trial_of(1, config_of(2), throughput=90.0, peak_memory_bytes=2 * GIB),
        trial_of(2, config_of(4), throughput=100.0, peak_memory_bytes=4 * GIB),
        trial_of(3, config_of(8), throughput=120.0, peak_memory_bytes=5 * GIB),
    ]
    runs = [run_of(each.id, each.throughput, 10.0 * each.id) for each in trials]
    return view_of(trials, runs, memory_limit_bytes=4 * GIB)


@pytest.mark.parametrize(("pick", "number"), [("fastest", 2), ("knee", 1), ("smallest", 0)])
def test_a_pick_is_a_point_of_the_front(pick: str, number: int) -> None:
    assert choose(three(), pick).trial == number


@pytest.mark.parametrize(
    ("memory", "number"), [("2GiB", 1), ("3GiB", 1), ("1GiB", 0), ("5GiB", 3), ("100%", 2), ("50%", 1)]
)
def test_memory_takes_the_fastest_measured_trial_that_fits(memory: str, number: int) -> None:
    view = three()
    if memory.endswith("%"):
        view.runs[0] = run_of(1, 50.0, 10.0, hardware={"total_memory_bytes": 4 * GIB})
    handover = choose(view, memory=memory)
    assert handover.trial == number
    assert any(memory in each for each in handover.remarks)


UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "KB", "MB", "GB", "TB", "kb", "")


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("peak", [14 * 2**20, 3 * 2**40])
def test_every_unit_of_size_works_for_small_models_and_large(unit: str, peak: int) -> None:
    scale = SIZES[unit.upper() or "B"]
    memory = f"{-(-peak // scale)}{unit}"
    trials = [trial_of(0, config_of(1), throughput=50.0, peak_memory_bytes=peak)]
    assert choose(view_of(trials, [run_of(1, 50.0, 0.0)]), memory=memory).trial == 0
    with pytest.raises(NothingToExport):
        choose(view_of(trials, [run_of(1, 50.0, 0.0)]), memory="13MiB")


def test_a_front_of_two_points_is_said_to_have_no_knee() -> None:
    view = three()
    two = view_of([view.trials[0], view.trials[2]], view.runs, memory_limit_bytes=4 * GIB)
    assert any("no knee" in each for each in choose(two, "knee").remarks)
    assert not any("no knee" in each for each in (*choose(view, "knee").remarks, *choose(two, "smallest").remarks))


def test_nothing_that_fits_names_the_smallest() -> None:
    with pytest.raises(NothingToExport, match=r"smallest needs 1\.00 GiB") as caught:
        choose(three(), memory="512MiB")
    assert caught.value.exit_status == 1
    with pytest.raises(NothingToExport, match="no measured configuration yet"):
        choose(view_of([trial_of(0, outcome="device_oom", throughput=0.0, peak_memory_bytes=None)]))


@pytest.mark.parametrize(("pick", "memory"), [("quickest", None), ("fastest", "forty"), ("fastest", "0%")])
def test_an_argument_nobody_can_read_is_refused_with_two(pick: str, memory: str | None) -> None:
    with pytest.raises(ExportRefused) as caught:
        choose(three(), pick, memory)
    assert caught.value.exit_status == 2


def test_the_fastest_is_the_confirmed_best_and_not_the_luckiest_window() -> None:
    study = FakeStudy(spec=spec_of(**CAPACITY, limits=limits_of(trials=20)), model=fixture_1(noise=0.02))
    study.search()
    study.confirm()
    summary = study.summary()
    view = view_of(study.trials, study.runs, study.spec, memory_limit_bytes=study.limit_bytes)
    handover = choose(view)
    assert handover.trial == summary["best"]["number"]
    assert handover.confirmed
    assert handover.throughput_interval == tuple(summary["best"]["throughput_interval"])
    assert handover.config.micro_batch_size * handover.config.accumulation_steps == handover.global_batch_size == 5040


def test_search_numbers_alone_are_marked_unconfirmed() -> None:
    assert choose(three()).confirmed is False


def test_what_travels_with_it() -> None:
    settings = {"data": {"sequence_length": 4096}, "lora": {"r": 8}}
    spec = spec_of(
        objective=ObjectiveReference(kind="causal_lm", settings=settings),
        global_batch_size=8, environment={"NCCL_DEBUG": "WARN"}, max_grad_norm=0.5,
    )  # fmt: skip
    hardware = {"threads": 3, "total_memory_bytes": 80 * GIB, "versions": {"torch": "2.13.0", "peft": None}}
    runs = [run_of(1, 10.0, 0.0, hardware=hardware)]
    facts = {"data": {"longest_row": 900}}
    handover = choose(view_of([trial_of(0, config_of(2))], runs, spec, memory_limit_bytes=40 * GIB, facts=facts))
    assert (handover.threads, handover.total_memory_bytes, handover.max_grad_norm) == (3, 80 * GIB, 0.5)
    assert handover.versions == {"torch": "2.13.0"}
    assert handover.environment == {"NCCL_DEBUG": "WARN"}
    assert handover.longest_tokens == 900
    assert handover.adapters == {"r": 8}
    assert handover.capped
    assert handover.headroom_bytes == 39 * GIB


@pytest.mark.case("F03")
@pytest.mark.parametrize(("ranks", "steps"), [(1, 16), (2, 8), (8, 2), (16, 1)])
def test_another_world_size_derives_accumulation_again(ranks: int, steps: int) -> None:
    handover = for_ranks(handover_of(config={"accumulation_steps": 16}), ranks)
    assert handover.config.accumulation_steps == steps
    require_exact(handover)


@pytest.mark.case("B10")
def test_another_accumulation_than_the_measured_one_is_said() -> None:
    assert "Measured with accumulation 4, exported with 1" in for_ranks(handover_of(), 4).remarks[-1]
    assert for_ranks(handover_of(), 1).remarks == ()


@pytest.mark.case("F03")
@pytest.mark.parametrize(("ranks", "said"), [
    (3, "these world sizes would: 1, 2, 4, 8, 16"), (32, "micro-batches would do: 1, 2"), (0, "1 or more"),
])  # fmt: skip
def test_a_world_size_that_cannot_be_exact_names_those_that_would(ranks: int, said: str) -> None:
    with pytest.raises(ExportRefused, match=said):
        for_ranks(handover_of(config={"accumulation_steps": 16}), ranks)
