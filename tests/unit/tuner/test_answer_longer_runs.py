"""What the longer runs' findings mean: remedies, recommendations, command lines. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

import pytest

from objectives.config import TrainingConfig
from storage.records import RunRecord, TrialRecord
from tuner.answer import profile, soak, verify
from tuner.answer.verify import verdict_of, whole_batch_fits
from tuner.documents import PROFILED, SOAKED, VERIFIED, missing
from tuner.errors import TightfitError
from tuner.work.profiling import program_of

MIB, GIB = 2**20, 2**30
NOW = datetime(2026, 12, 1, tzinfo=UTC)


def measured(rate: float, *, live: float = 0.0, speed: float = 100.0, base: float = 500 * MIB) -> dict[str, Any]:
    """A soak of 100 seconds, growing by so many bytes a second."""
    series = [
        {"seconds": float(at), "updates": at, "reserved_bytes": int(base + rate * at),
         "allocated_bytes": int(base / 2 + live * at), "largest_free_block_bytes": 9 * MIB, "retries": 0}
        for at in range(101)
    ]  # fmt: skip
    return {
        "series": series, "seconds": 100.0, "units_per_second": speed, "peak_memory_bytes": int(base + 100 * rate),
        "updates": 100, "evaluations": 8, "kept": "a list of 100 entries named `losses`", "tensors": [10, 110],
    }  # fmt: skip


def test_fragmentation_asks_for_remedies_and_a_leak_does_not() -> None:
    assert soak.needs_remedy(soak.curves_of(measured(MIB)), GIB, 10 * GIB)
    assert not soak.needs_remedy(soak.curves_of(measured(MIB, live=MIB)), GIB, 10 * GIB)
    assert not soak.needs_remedy(soak.curves_of(measured(0.0)), GIB, 10 * GIB)
    assert soak.needs_remedy(soak.curves_of(measured(0.0)), int(9.8 * GIB), 10 * GIB)


def test_the_remedies_of_each_device() -> None:
    cuda = [each.name for each in soak.attempts_for(TrainingConfig(), "cuda", groups_lengths=True, every=50)]
    assert cuda == [
        "allocator expandable_segments", "allocator max_split_size", "batching length-grouped",
        "empty the cache every 50 updates",
    ]  # fmt: skip
    cpu = soak.attempts_for(TrainingConfig(), "cpu", groups_lengths=False, every=5)
    assert cpu[0].environment == {"MALLOC_ARENA_MAX": "2"}
    assert cpu[-1].answer == {"empty_cache_every": 5}


def test_a_remedy_that_helps_is_recommended_with_its_cost() -> None:
    plain = measured(MIB)
    attempts = soak.attempts_for(TrainingConfig(), "cuda", groups_lengths=False, every=9)
    tried = [soak.judged(attempts[0], measured(0.0, speed=95.0), plain), soak.judged(attempts[1], plain, plain)]
    assert [each["helps"] for each in tried] == [True, False]
    told = soak.found(plain, tried, 10 * GIB)
    assert told["recommendation"] == "allocator expandable_segments, 5 % slower: with it memory grew less over the soak"
    assert not missing(soak.document(told, study="s", trial=1, run="r"), SOAKED)


def test_a_leak_is_told_with_its_keeper_and_a_restart_interval() -> None:
    told = soak.found(measured(MIB, live=MIB), [], 8 * GIB)
    assert told["leak"]
    assert told["leak_source"] == "a list of 100 entries named `losses`"
    assert "restart from a checkpoint every 1.9 hours" in told["recommendation"]


def test_what_is_flat_needs_nothing_and_what_cannot_be_told_needs_time() -> None:
    assert soak.found(measured(0.0), [], GIB)["recommendation"] is None
    short = measured(0.0)
    short["series"] = short["series"][:5]
    assert "--minutes" in soak.found(short, [], GIB)["recommendation"]


def test_the_export_is_told_what_the_latest_soak_of_the_trial_found() -> None:
    told = soak.found(measured(MIB, live=MIB), [], 8 * GIB)
    runs = [
        RunRecord(id=name, study_id=1, trial_id=trial, purpose="soak", outcome="completed", started_at=NOW,
                  measurement=found)
        for name, trial, found in (("a", 7, told), ("b", None, {}), ("c", 8, told))
    ]  # fmt: skip
    first, second = soak.remarks(runs, 7)
    assert "memory grows" in first
    assert second.startswith("From the soak: live memory grows by")
    assert soak.remarks(runs, 9) == ()


def test_a_long_series_is_thinned_evenly_with_its_end() -> None:
    rows = [{"seconds": at} for at in range(1000)]
    thin = soak.thinned(rows)
    assert len(thin) == soak.MOST_POINTS
    assert (thin[0], thin[-1]) == (rows[0], rows[-1])


def trial(peak: int, **config: Any) -> TrialRecord:
    made = TrainingConfig(**config).to_mapping()
    return TrialRecord(id=1, study_id=1, number=1, config=made, config_key="k", source="auto", outcome="completed",
                       throughput=1.0, peak_memory_bytes=peak, created_at=NOW)  # fmt: skip


def test_the_whole_batch_is_a_reference_where_it_surely_fits() -> None:
    winner = trial(GIB, micro_batch_size=2, accumulation_steps=4)
    assert whole_batch_fits([], winner, None)
    assert whole_batch_fits([], winner, 4 * GIB)
    assert not whole_batch_fits([], winner, 3 * GIB)
    assert whole_batch_fits([trial(2 * GIB, micro_batch_size=8, accumulation_steps=1)], winner, 3 * GIB)
    half = trial(GIB, micro_batch_size=2, accumulation_steps=4, precision="bf16-mixed")
    assert not whole_batch_fits([], half, 4 * GIB)
    assert whole_batch_fits([], half, 8 * GIB)


def test_without_a_comparison_nothing_is_verified() -> None:
    assert verdict_of({}) == "not_measured"
    assert not missing(verify.document({}, study="s", trial=1, run="r"), VERIFIED)
    assert not missing(
        profile.document({"tool": "torch"}, [], study="s", trial=1, run="r", folder="f"), PROFILED
    )  # fmt: skip


def test_nsight_systems_keeps_the_marked_steps_alone() -> None:
    command = profile.command_of("nsys", "/opt/nsys", PurePosixPath("/data/run"))
    assert command[:2] == ("/opt/nsys", "profile")
    assert "--capture-range=cudaProfilerApi" in command
    assert "--trace=cuda,nvtx,cudnn,cublas" in command
    assert "--output=/data/run/profile" in command


def test_nsight_compute_waits_for_the_marked_steps() -> None:
    command = profile.command_of("ncu", "ncu", PurePosixPath("/data/run"))
    assert "--profile-from-start=off" in command
    assert "--nvtx" in command
    assert "--export=/data/run/profile" in command
    assert profile.command_of("torch", "", PurePosixPath("/x")) == ()


def test_a_missing_tool_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TightfitError, match=r"Nsight Systems \(nsys\) is not installed here: .*nsight-systems"):
        program_of("nsys", "cuda")
    with pytest.raises(TightfitError, match="Nsight Compute looks at NVIDIA GPUs"):
        program_of("ncu", "cpu")
    assert program_of("torch", "cpu") == ""


@pytest.mark.parametrize("name", ["trace.json.gz", "memory_snapshot.pickle", "profile.nsys-rep", "profile.ncu-rep"])
def test_every_file_says_how_to_open_it(name: str) -> None:
    assert profile.reading(name)
