"""The model's own FLOPs: the textbook's numbers, without what checkpointing computes again; their share of a peak."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from objectives.measure.flops import (
    PEAKS,
    ModelFlops,
    count_flops_per_unit,
    measurement_fault,
    mfu,
    peak_flops_per_second,
)


class Attention(nn.Module):
    def __init__(self, implementation: str) -> None:
        super().__init__()
        self.implementation = implementation
        self.qkv = nn.Linear(16, 48, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4).unbind(0)
        if self.implementation == "sdpa":
            return nn.functional.scaled_dot_product_attention(q, k, v)
        return torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1) @ v


class Workload:
    """Two linear layers (or any other module) whose loss is a sum, as the contract wants it."""

    def __init__(self, model: nn.Module, *, recompute: bool = False, looks_at_values: bool = False) -> None:
        self.model, self.recompute, self.looks_at_values = model, recompute, looks_at_values

    def loss(self, model: nn.Module, batch: torch.Tensor) -> tuple[torch.Tensor, int]:
        out: Any = checkpoint(model, batch, use_reentrant=False) if self.recompute else model(batch)
        if self.looks_at_values and out.sum().item() > 1e9:
            raise AssertionError
        return out.square().sum(), batch.shape[0]


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))


EXPECTED = 2 * (8 * 32 + 32 * 4) * 3 - 2 * 8 * 32
"""Forward, and twice that backward, but the first layer's input wants no gradient."""


@pytest.mark.parametrize("recompute", [False, True])
def test_linear_layers_count_by_the_textbook_with_and_without_recomputation(recompute: bool) -> None:
    batch = torch.randn(5, 8)
    workload = Workload(layers(), recompute=recompute)
    assert count_flops_per_unit(workload, batch) == EXPECTED
    with ModelFlops() as counted:
        workload.loss(workload.model, batch)[0].backward()
    assert counted.flops == 5 * EXPECTED


def test_attention_counts_the_same_in_every_implementation() -> None:
    batch = torch.randn(2, 6, 16)
    found = {name: count_flops_per_unit(Workload(Attention(name)), batch) for name in ("sdpa", "eager")}
    assert found["sdpa"] == found["eager"]


def test_counting_leaves_gradients_and_weights_alone() -> None:
    workload = Workload(layers())
    before = [parameter.detach().clone() for parameter in workload.model.parameters()]
    kept = torch.ones_like(before[0])
    next(workload.model.parameters()).grad = kept
    count_flops_per_unit(workload, torch.randn(3, 8))
    parameters = list(workload.model.parameters())
    assert parameters[0].grad is kept
    assert all(parameter.grad is None for parameter in parameters[1:])
    assert all(torch.equal(a, b) for a, b in zip(before, parameters, strict=True))


def test_a_model_that_looks_at_values_has_no_figure_on_fake_tensors() -> None:
    assert count_flops_per_unit(Workload(layers(), looks_at_values=True), torch.randn(3, 8)) is None


@pytest.mark.parametrize(
    ("name", "precision", "tera"),
    [
        ("NVIDIA A100-SXM4-80GB", "bf16-mixed", 312),
        ("NVIDIA A10", "bf16-true", 125),
        ("NVIDIA A10G", "bf16-mixed", 70),
        ("NVIDIA H100 80GB HBM3", "tf32", 494.5),
        ("NVIDIA H100 PCIe", "fp16-mixed", 756.5),
        ("NVIDIA H200", "bf16-mixed", 989.5),
        ("NVIDIA L4", "fp32", 30.3),
        ("NVIDIA L40S", "bf16-mixed", 362),
        ("Tesla V100-SXM2-16GB", "fp16-mixed", 125),
        ("Tesla V100-SXM2-16GB", "bf16-mixed", None),
        ("Tesla T4", "tf32", None),
        ("NVIDIA GeForce RTX 4090", "bf16-mixed", 165.2),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bf16-mixed", None),
        ("NVIDIA RTX 9999", "bf16-mixed", None),
        ("AMD EPYC 9654 96-Core Processor", "fp32", None),
        ("NVIDIA H100 80GB HBM3", "fp8", None),
    ],
)
def test_peaks_by_the_drivers_name(name: str, precision: str, tera: float | None) -> None:
    expected = None if tera is None else pytest.approx(tera * 1e12)
    assert peak_flops_per_second(name, precision) == expected


def test_every_peak_names_its_source_and_is_found_by_its_own_name() -> None:
    for name, peak in PEAKS:
        assert peak.source
        found = peak_flops_per_second(f"NVIDIA {name}", "fp16-mixed")
        assert found == pytest.approx(peak.half * 1e12), name


@pytest.mark.case("H01")
def test_more_than_the_peak_is_a_fault_of_the_measurement() -> None:
    used = mfu(flops_per_unit=6e9, units_per_second=1e6, peak=1e15)
    assert used == pytest.approx(6)
    assert "600%" in str(measurement_fault(used))
    assert measurement_fault(mfu(flops_per_unit=6e9, units_per_second=5e4, peak=1e15)) is None


def test_what_is_not_known_has_no_share() -> None:
    assert mfu(flops_per_unit=None, units_per_second=1.0, peak=1e15) is None
    assert mfu(flops_per_unit=1.0, units_per_second=1.0, peak=None) is None
    assert measurement_fault(None) is None
