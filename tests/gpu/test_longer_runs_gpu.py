"""verify, soak and profile on a real GPU, in this process: what only a GPU shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from longer_runs import run_body

from objectives.trial.profiling import SNAPSHOT, TRACE
from objectives.trial.profiling import run as profile
from objectives.trial.soaking import run as soak

pytestmark = pytest.mark.gpu

CUDA: dict[str, Any] = {"device": "cuda"}
CONFIG = {"micro_batch_size": 2, "accumulation_steps": 2, "precision": "bf16-mixed"}


@pytest.mark.parametrize("micro", [1, 4])
@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed", "fp16-mixed"])
def test_right_code_is_accepted_and_the_mean_of_means_is_not(micro: int, precision: str) -> None:
    from objectives.trial.equivalence import run as verify

    config = {"micro_batch_size": micro, "accumulation_steps": 8 // micro, "precision": precision}
    asked = {"baseline": {"micro_batch_size": 2, "accumulation_steps": 4}, "whole_fits": True, "curve_updates": 2}
    right = run_body(verify, "planted_accumulation:Right", config, asked, **CUDA)
    assert all(each["distance"] < each["bound"] for each in right["gradients"])
    wrong = run_body(verify, "planted_accumulation:MeanTimesSamples", config, asked | {"curve_updates": 0}, **CUDA)
    assert wrong["fault"]["kind"] == "mean_of_means"
    assert wrong["gradients"][0]["distance"] > 100 * right["gradients"][0]["distance"]


def test_a_trace_has_the_device_s_time_in_its_categories(tmp_path: Path) -> None:
    found = run_body(
        profile, "planted_slow_paths:Clean", {**CONFIG, "micro_batch_size": 64, "accumulation_steps": 1},
        {"tool": "torch", "folder": str(tmp_path)}, purpose="profile", **CUDA,
    )  # fmt: skip
    assert (tmp_path / TRACE).is_file()
    assert found["shares"]["matmul"] > 0
    assert sum(found["shares"].values()) == pytest.approx(1.0)
    assert 0 < found["shares"]["idle"] < 1
    assert found["memory_by_category"]["parameters"] > 0


@pytest.mark.parametrize("kind", ["HiddenItem", "HiddenNonzero", "PythonLoop", "CopyBound"])
def test_what_is_planted_is_named_on_a_gpu(kind: str, tmp_path: Path) -> None:
    found = run_body(
        profile, f"planted_slow_paths:{kind}", {**CONFIG, "micro_batch_size": 32},
        {"tool": "torch", "folder": str(tmp_path)}, purpose="profile", **CUDA,
    )  # fmt: skip
    wanted = {"PythonLoop": "slow_path", "CopyBound": "copy_bound"}.get(kind, "hidden_synchronisation")
    assert wanted in {each["kind"] for each in found["findings"]}


def test_a_module_left_on_the_host_is_named(tmp_path: Path) -> None:
    found = run_body(
        profile, "planted_slow_paths:LeftOnTheHost", {**CONFIG, "micro_batch_size": 8},
        {"tool": "torch", "folder": str(tmp_path)}, purpose="profile", **CUDA,
    )  # fmt: skip
    assert any(each["kind"] == "wrong_device" and "extra" in each["where"] for each in found["findings"])


def test_the_allocator_s_snapshot_is_kept_and_summarised(tmp_path: Path) -> None:
    found = run_body(
        profile, "planted_slow_paths:Clean", CONFIG, {"tool": "memory", "folder": str(tmp_path)}, purpose="profile",
        **CUDA,
    )  # fmt: skip
    assert (tmp_path / SNAPSHOT).stat().st_size > 1000
    allocator = found["allocator"]
    assert 0 < allocator["allocated_bytes"] <= allocator["reserved_bytes"]
    assert any("planted" in each["place"] or "objectives" in each["place"] for each in allocator["places"])


def test_the_marked_steps_of_nsight_run_without_it(tmp_path: Path) -> None:
    found = run_body(
        profile, "planted_slow_paths:Clean", CONFIG, {"tool": "nsys", "folder": str(tmp_path)}, purpose="profile",
        **CUDA,
    )  # fmt: skip
    assert found["files"] == []


@pytest.mark.parametrize("every", [None, 5])
def test_a_soak_reads_the_allocator(every: int | None) -> None:
    found = run_body(
        soak, "planted_accumulation:Right", CONFIG, {"seconds": 2.0, "empty_cache_every": every}, purpose="soak",
        name="measurement", **CUDA,
    )  # fmt: skip
    last = found["series"][-1]
    assert 0 < last["allocated_bytes"] <= last["reserved_bytes"] <= found["peak_memory_bytes"]
    assert last["retries"] == 0
    assert any(each["largest_free_block_bytes"] is not None for each in found["series"])


def test_a_leak_shows_in_live_memory() -> None:
    found = run_body(
        soak, "planted_growth:KeepsLosses", CONFIG, {"seconds": 3.0}, purpose="soak", name="measurement", **CUDA
    )  # fmt: skip
    first, last = found["series"][0]["allocated_bytes"], found["series"][-1]["allocated_bytes"]
    assert last > first
    assert "losses" in str(found["kept"])
    assert torch.cuda.is_available()
