"""Precision: TF32 set on both of PyTorch's interfaces, read back with the driver's override, buffers and inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from objectives import knobs
from objectives.config import TrainingConfig
from objectives.knobs.memory_format import convert_batch
from objectives.knobs.precision import INITIAL_LOSS_SCALE, set_tf32, shape_conflict, tf32_in_effect
from objectives.trial.setup import Setup

CPU = torch.device("cpu")


class Plain:
    """A workload with a model and nothing else."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model


@pytest.fixture(autouse=True)
def _flags(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    yield
    set_tf32(False)


def applied(precision: str, model: nn.Module) -> Setup:
    setup = Setup(device=CPU, workload=Plain(model), config=TrainingConfig(precision=precision))  # type: ignore[arg-type]
    knobs.apply_all(setup)
    return setup


@pytest.mark.case("C06")
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("on", [True, False])
def test_tf32_is_set_explicitly_and_both_interfaces_can_still_be_read(before: bool, on: bool) -> None:
    set_tf32(before)
    set_tf32(on)
    assert tf32_in_effect() is on
    assert torch.get_float32_matmul_precision() == ("high" if on else "highest")  # the compiler still asks this one


@pytest.mark.case("C06")
@pytest.mark.parametrize(("override", "asked", "found"), [("0", True, False), ("1", False, True), ("", True, True)])
def test_the_driver_s_override_beats_the_flags(
    monkeypatch: pytest.MonkeyPatch, override: str, asked: bool, found: bool
) -> None:
    set_tf32(asked)
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", override)
    assert tf32_in_effect() is found


@pytest.mark.case("C06")
def test_flags_that_disagree_are_seen() -> None:
    set_tf32(False)
    backends: Any = torch.backends
    backends.cudnn.conv.fp32_precision = "tf32"
    assert tf32_in_effect() is None


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed", "fp16-mixed"])
def test_mixed_precision_and_fp32_hold_parameters_in_32_bits_whatever_was_loaded(precision: str) -> None:
    setup = applied(precision, nn.Linear(4, 4).to(torch.bfloat16))
    assert {p.dtype for p in setup.model.parameters()} == {torch.float32}
    assert knobs.read_back(setup)["precision"] == precision


def test_bf16_true_casts_floating_parameters_and_buffers_and_keeps_counters() -> None:
    setup = applied("bf16-true", nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)))
    buffers = dict(setup.model.named_buffers())
    assert buffers["1.running_mean"].dtype == torch.bfloat16
    assert buffers["1.num_batches_tracked"].dtype == torch.int64


@pytest.mark.case("C12")
def test_bf16_true_and_bf16_mixed_are_told_apart_and_the_first_loses_small_updates() -> None:
    assert knobs.read_back(applied("bf16-true", nn.Linear(2, 2)))["precision"] == "bf16-true"
    assert knobs.read_back(applied("bf16-mixed", nn.Linear(2, 2)))["precision"] == "bf16-mixed"
    one = torch.tensor(1.0, dtype=torch.bfloat16)
    assert one + 1e-3 == one


def test_fp16_has_a_scaler_that_starts_at_the_stated_scale() -> None:
    setup = applied("fp16-mixed", nn.Linear(2, 2))
    assert setup.scaler is not None
    assert setup.scaler.get_scale() == INITIAL_LOSS_SCALE == 65536.0


@pytest.mark.parametrize("change", ["half", "no_scaler", "no_autocast"])
def test_what_is_not_as_asked_shows_as_a_difference(change: str) -> None:
    setup = applied("fp16-mixed", nn.Linear(2, 2))
    if change == "half":
        setup.model.half()
    elif change == "no_scaler":
        setup.scaler = None
    else:
        setup.forward_contexts.clear()
    (difference,) = knobs.differences(setup)
    assert difference["knob"] == "precision"
    assert difference["asked"] == "fp16-mixed"
    assert difference["found"] not in knobs.knob("precision").values


@pytest.mark.case("C03")
@pytest.mark.parametrize(("precision", "finite"), [("fp16-mixed", False), ("bf16-mixed", True), ("fp32", True)])
def test_what_fits_bfloat16_can_overflow_float16(precision: str, finite: bool) -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 66246.0)
    setup = applied(precision, model)
    with setup.forward_contexts[-1]():
        out = setup.model(torch.ones(1, 1))
    assert bool(out.isfinite().all()) is finite


@pytest.mark.case("C07")
def test_only_micro_batches_that_divide_pass_a_shape_rule() -> None:
    fitting = [n for n in range(1, 9) if shape_conflict(tokens_per_micro_batch=n * 250, multiple=16) is None]
    assert fitting == [8]
    assert "multiple of 16" in str(shape_conflict(tokens_per_micro_batch=750, multiple=16))


class Pair(NamedTuple):
    picture: torch.Tensor
    label: torch.Tensor


def test_batches_follow_the_model_s_format_and_type_and_keep_their_shape() -> None:
    pair = Pair(torch.rand(2, 3, 4, 4), torch.tensor([1, 2]))
    batch = {"pair": pair, "rows": [torch.rand(2, 3)], "name": "x"}
    config = TrainingConfig(memory_format="channels_last", precision="bf16-true")
    made = convert_batch(batch, config)
    assert isinstance(made["pair"], Pair)
    assert made["pair"].picture.is_contiguous(memory_format=torch.channels_last)
    assert made["pair"].picture.dtype == made["rows"][0].dtype == torch.bfloat16
    assert made["pair"].label is pair.label
    assert made["name"] == "x"
    assert convert_batch(batch, TrainingConfig()) is batch
