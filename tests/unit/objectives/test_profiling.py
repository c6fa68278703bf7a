"""Mistake 7, planted and clean: each fault is named by the summary, no clean twin is accused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from longer_runs import run_body

from objectives.measure.operators import CATEGORIES, Row, category_of, copy_bound, dearest, python_loops, shares
from objectives.trial.allocator_snapshot import summary_of_snapshot
from objectives.trial.profiling import TRACE, run
from objectives.trial.watching import common_module

FAULTS = {
    "HiddenItem": ("hidden_synchronisation", "planted_slow_paths.py:"),
    "HiddenNonzero": ("hidden_synchronisation", "planted_slow_paths.py:"),
    "PythonLoop": ("slow_path", "extra"),
    "WidePath": ("slow_path", "extra.block"),
    "CopyBound": ("copy_bound", "extra"),
}
TWINS = ["Clean", "ValueStays", "OneProduct", "NarrowPath", "ViewsOnly"]
IN_THE_DEFAULT_RUN = {"HiddenItem", "PythonLoop", "CopyBound", "Clean"}


def parameters(names: list[str]) -> list[Any]:
    slow = pytest.mark.slow
    return [pytest.param(name, marks=() if name in IN_THE_DEFAULT_RUN else slow) for name in names]


def profiled(kind: str, folder: Path, tool: str = "torch") -> dict[str, Any]:
    config = {"micro_batch_size": 8, "accumulation_steps": 2, "precision": "bf16-mixed"}
    return run_body(
        run, f"planted_slow_paths:{kind}", config, {"tool": tool, "folder": str(folder)}, purpose="profile"
    )  # fmt: skip


@pytest.mark.parametrize("kind", parameters(list(FAULTS)))
def test_a_planted_fault_is_named(kind: str, tmp_path: Path) -> None:
    wanted, where = FAULTS[kind]
    (found,) = profiled(kind, tmp_path)["findings"]
    assert found["kind"] == wanted
    assert where in found["where"]
    assert found["advice"]


@pytest.mark.parametrize("kind", parameters(TWINS))
def test_no_clean_twin_is_accused(kind: str, tmp_path: Path) -> None:
    found = profiled(kind, tmp_path)
    assert found["findings"] == []
    assert found["waits"] == []
    assert (tmp_path / TRACE).read_bytes()[:2] == b"\x1f\x8b"  # gzip
    assert set(found["shares"]) == set(CATEGORIES)
    assert sum(found["shares"].values()) == pytest.approx(1.0)
    assert found["shares"]["matmul"] > 0.15
    assert set(found["phases"]) == {"data", "forward", "backward", "optimizer"}
    assert found["operators"][0]["seconds"] >= found["operators"][1]["seconds"]


def test_memory_at_the_peak_is_told_by_category_and_module(tmp_path: Path) -> None:
    found = profiled("Clean", tmp_path, "memory")
    parameters = 4 * (2 * (192 * 384 + 384 + 384 * 192 + 192) + 192 * 16 + 16)
    categories, modules = found["memory_by_category"], found["memory_by_module"]
    assert categories["parameters"] == parameters
    assert 2 * parameters <= categories["optimizer_state"] < 2 * parameters + 1024
    assert categories["activations"] > 0
    assert sum(modules.values()) == sum(categories.values())
    assert {"first.inner", "second.outer", "head"} <= set(modules)
    assert "no" in found["notes"][0] or "none" in found["notes"][0]


@pytest.mark.parametrize(
    ("operator", "category"),
    [
        ("aten::addmm", "matmul"), ("aten::convolution_backward", "matmul"), ("ampere_bf16_s16816gemm", "matmul"),
        ("aten::_flash_attention_forward", "attention"), ("aten::copy_", "copies"), ("aten::cat", "copies"),
        ("Memcpy HtoD (Pageable -> Device)", "copies"), ("aten::gelu", "elementwise"),
        ("aten::_fused_adamw_", "elementwise"), ("aten::native_layer_norm", "elementwise"),
        ("nccl:all_reduce", "communication"), ("aten::view", "other"), ("AddmmBackward0", "other"),
    ],
)  # fmt: skip
def test_operators_have_their_category(operator: str, category: str) -> None:
    assert category_of(operator) == category


def test_attention_written_out_counts_as_attention() -> None:
    assert category_of("aten::bmm", "layers.0.self_attn") == "attention"
    assert category_of("aten::_softmax", "layers.0.self_attn") == "attention"
    assert category_of("aten::addmm", "layers.0.self_attn.q_proj") == "matmul"
    assert category_of("aten::bmm", "layers.0.experts") == "matmul"


def row(operator: str, module: str, seconds: float, calls: int = 1, **values: Any) -> Row:
    return Row(
        operator=operator, module=module, phase=values.pop("phase", "forward"), seconds=seconds, calls=calls, **values
    )


def test_shares_leave_room_for_what_was_idle() -> None:
    rows = [row("aten::mm", "a", 3.0), row("aten::gelu", "a", 1.0)]
    found = shares(rows, 0.5)
    assert (found["matmul"], found["elementwise"], found["idle"]) == pytest.approx((0.375, 0.125, 0.5))
    assert shares([], 1.0)["idle"] == 1.0
    assert dearest(rows)[0] == {
        "name": "aten::mm", "category": "matmul", "seconds": 3.0, "share": 0.75, "calls": 1
    }  # fmt: skip


def test_a_small_layer_that_copies_is_not_accused() -> None:
    rows = [row("aten::mm", "a", 10.0), row("aten::copy_", "b", 0.5), row("aten::copy_", "c", 2.0)]
    assert [each.where for each in copy_bound(rows)] == ["c"]


def test_layers_that_are_called_often_are_no_loop() -> None:
    many = row("aten::mul", "layer", 0.4, 640, direct_calls=640, direct_seconds=0.4)
    assert python_loops([many], {"layer": 640}, {"layer": 0.5}, 1.0) == []
    (found,) = python_loops([many], {"layer": 10}, {"layer": 0.5}, 1.0)
    assert "64 times per forward" in found.text
    large = row("aten::mm", "layer", 0.9, 40, direct_calls=40, direct_seconds=0.9)
    assert python_loops([large], {"layer": 1}, {"layer": 0.9}, 1.0) == []


def test_the_innermost_common_module_is_named() -> None:
    assert common_module({"a.b.c": 1.0, "a.b.d": 2.0}) == "a.b"
    assert common_module({"a": 1.0, "b": 2.0}) == "b"
    assert common_module({"": 1.0}) == "the loss"


def test_an_allocator_snapshot_is_summarised_as_plain_data() -> None:
    def block(size: int, state: str, *frames: str) -> dict[str, Any]:
        return {"size": size, "state": state,
                "frames": [{"filename": name, "line": 7, "name": "f"} for name in frames]}  # fmt: skip

    segments = [
        {"total_size": 100, "blocks": [block(60, "active_allocated", "/x/torch/nn/a.py", "/me/model.py"),
                                       block(40, "inactive")]},
        {"total_size": 50, "blocks": [block(50, "active_allocated", "/x/torch/optim/adam.py")]},
    ]  # fmt: skip
    assert summary_of_snapshot(segments) == {
        "segments": 2, "reserved_bytes": 150, "allocated_bytes": 110, "free_blocks": 1, "largest_free_block_bytes": 40,
        "places": [
            {"place": "/me/model.py:7 (f)", "bytes": 60}, {"place": "/x/torch/optim/adam.py:7 (f)", "bytes": 50},
        ],
    }  # fmt: skip
