"""FLOPs of the model itself, and how much of the device's peak they use (MFU).

Counted: the matrix products, convolutions and attention of one forward and one backward, by torch's own formulas
(``torch.utils.flop_counter``; a multiply and an add are two). Not counted: what activation checkpointing computes
again, which is work but not the model's; element-wise work, as in every published MFU (PaLM, arXiv:2204.02311, appendix
B).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from objectives.contract import Batch, Workload


@dataclass(frozen=True, kw_only=True)
class Peak:
    """A device's peak in TFLOP/s with dense matrices; None for what its tensor cores do not have.

    ``half`` and ``brain`` are 16-bit tensor cores with 32-bit accumulation, ``single`` is plain 32-bit without them.
    """

    single: float
    tensor_float: float | None
    half: float
    brain: float | None
    source: str


def _peak(single: float, tensor_float: float | None, half: float, source: str, *, brain: bool = True) -> Peak:
    return Peak(single=single, tensor_float=tensor_float, half=half, brain=half if brain else None, source=source)


PEAKS: tuple[tuple[str, Peak], ...] = (
    ("GB200", _peak(80, 1250, 2500, "NVIDIA GB200 NVL72 data sheet, per GPU, half the sparse figure")),
    ("B200", _peak(75, 1125, 2250, "NVIDIA HGX B200 data sheet, per GPU, half the sparse figure")),
    ("GH200", _peak(67, 494.5, 989.5, "NVIDIA GH200 data sheet, half the sparse figure")),
    ("H200 NVL", _peak(60, 417.5, 835.5, "NVIDIA H200 data sheet (NVL), half the sparse figure")),
    ("H200", _peak(67, 494.5, 989.5, "NVIDIA H200 data sheet (SXM), half the sparse figure")),
    ("H100 PCIe", _peak(51, 378, 756.5, "NVIDIA H100 data sheet (PCIe), half the sparse figure")),
    ("H100 NVL", _peak(60, 417.5, 835.5, "NVIDIA H100 data sheet (NVL), half the sparse figure")),
    ("H100", _peak(67, 494.5, 989.5, "NVIDIA H100 data sheet (SXM), half the sparse figure")),
    ("H800", _peak(67, 494.5, 989.5, "as H100 SXM")),
    ("H20", _peak(44, 74, 148, "NVIDIA H20 data sheet")),
    ("A100", _peak(19.5, 156, 312, "NVIDIA A100 data sheet")),
    ("A800", _peak(19.5, 156, 312, "as A100")),
    ("A40", _peak(37.4, 74.8, 149.7, "NVIDIA A40 data sheet")),
    ("A30", _peak(10.3, 82, 165, "NVIDIA A30 data sheet")),
    ("A10G", _peak(35, 35, 70, "NVIDIA A10G data sheet")),
    ("A10", _peak(31.2, 62.5, 125, "NVIDIA A10 data sheet")),
    ("L40S", _peak(91.6, 183, 362, "NVIDIA L40S data sheet, dense")),
    ("L40", _peak(90.5, 90.5, 181, "NVIDIA L40 data sheet, dense")),
    ("L4", _peak(30.3, 60, 121, "NVIDIA L4 data sheet, half the sparse figure")),
    ("RTX 6000 Ada", _peak(91.1, 182.1, 364.2, "NVIDIA Ada GPU architecture, professional, dense")),
    ("RTX A6000", _peak(38.7, 77.4, 154.8, "NVIDIA GA102 GPU architecture, RTX A6000, dense")),
    ("RTX 5090", _peak(104.8, 104.8, 209.5, "NVIDIA RTX Blackwell GPU architecture, 32-bit accumulation, dense")),
    ("RTX 4090", _peak(82.6, 82.6, 165.2, "NVIDIA Ada GPU architecture, 32-bit accumulation, dense")),
    ("RTX 4080", _peak(48.7, 48.7, 97.5, "NVIDIA Ada GPU architecture, 32-bit accumulation, dense")),
    ("RTX 3090 Ti", _peak(40, 40, 80, "NVIDIA GA102 GPU architecture, 32-bit accumulation, dense")),
    ("RTX 3090", _peak(35.6, 35.6, 71, "NVIDIA GA102 GPU architecture, 32-bit accumulation, dense")),
    ("V100S", _peak(16.4, None, 130, "NVIDIA V100 data sheet (V100S)", brain=False)),
    ("V100-SXM", _peak(15.7, None, 125, "NVIDIA V100 data sheet (SXM2)", brain=False)),
    ("V100-PCIE", _peak(14, None, 112, "NVIDIA V100 data sheet (PCIe)", brain=False)),
    ("T4", _peak(8.1, None, 65, "NVIDIA T4 data sheet", brain=False)),
)
"""Peaks by a word of the device's name, the more special names first. Names not here have no peak, and no MFU."""

FIELDS: Mapping[str, str] = {
    "fp32": "single",
    "tf32": "tensor_float",
    "fp16-mixed": "half",
    "bf16-mixed": "brain",
    "bf16-true": "brain",
}


def peak_flops_per_second(device_name: str, precision: str) -> float | None:
    """The device's dense peak in that precision; None for a CPU, an unknown device, a MIG instance, or no such units.

    Args:
        device_name: As the driver says it, e.g. ``NVIDIA H100 80GB HBM3``.
        precision: A value of the knob ``precision``.
    """
    words = device_name.replace("Tesla ", "").split()
    if "MIG" in words or precision not in FIELDS:
        return None
    for name, peak in PEAKS:
        if _names(name, words):
            figure: float | None = getattr(peak, FIELDS[precision])
            return None if figure is None else figure * 1e12
    return None


def _names(name: str, words: list[str]) -> bool:
    """Whether a peak's words are words of the device's name, side by side (``A10`` is no ``A100``)."""
    wanted = name.split()
    spans = (words[start : start + len(wanted)] for start in range(len(words) - len(wanted) + 1))
    return any(all(_is_word(want, word) for want, word in zip(wanted, span, strict=True)) for span in spans)


def _is_word(wanted: str, word: str) -> bool:
    """The word itself, or with a variant behind it: ``A100-SXM4-80GB``, ``V100-SXM2-16GB`` for ``V100-SXM``."""
    rest = word.removeprefix(wanted)
    return word.startswith(wanted) and (not rest or rest[0] == "-" or ("-" in wanted and rest[0].isdigit()))


def mfu(*, flops_per_unit: float | None, units_per_second: float, peak: float | None) -> float | None:
    """Model FLOPs per second over the device's peak, from 0 to 1; None when either is not known."""
    if flops_per_unit is None or not peak:
        return None
    return flops_per_unit * units_per_second / peak


def measurement_fault(utilisation: float | None) -> str | None:
    """Why a measurement cannot be true, or None: more work a second than the device can do is a wrong clock (H01)."""
    if utilisation is None or utilisation <= 1.0:
        return None
    return f"{utilisation:.0%} of the device's peak: the steps were timed wrongly, or the device is not what it says"


class ModelFlops:
    """A context that adds up the FLOPs of everything inside it, recomputation left out.

    Activation checkpointing recomputes inside the backward pass with gradients switched on; nothing else there does.
    Must surround an eager model: compiled graphs do not pass through it.
    """

    def __init__(self) -> None:
        self.flops = 0
        self._mode = _counting_mode(self)

    def __enter__(self) -> ModelFlops:
        self._mode.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._mode.__exit__(*error)


def _counting_mode(total: ModelFlops) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            total.flops += _flops_of(func, args, kwargs or {}, out)
            return out

    return Mode()  # type: ignore[no-untyped-call]


def _flops_of(func: Any, args: Any, kwargs: Any, out: Any) -> int:
    formula = _formulas().get(getattr(func, "overloadpacket", func))
    return 0 if formula is None or _recomputing() else int(formula(*args, **kwargs, out_val=out))


def _recomputing() -> bool:
    import torch

    return torch.is_grad_enabled() and torch._C._current_graph_task_id() != -1


@cache
def _formulas() -> Mapping[Any, Callable[..., Any]]:
    """The formulas of torch, but attention counts the same in every implementation.

    The CPU's attention kernel, not listed by torch, has the shapes of the flash kernel. A fused backward computes the
    scores again: five products by torch's formula, of which four are the model's.
    """
    import torch
    from torch.utils.flop_counter import flop_registry

    aten = torch.ops.aten
    cpu = {
        aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[aten._scaled_dot_product_flash_attention],
        aten._scaled_dot_product_flash_attention_for_cpu_backward: flop_registry[
            aten._scaled_dot_product_flash_attention_backward
        ],
    }
    return {op: _without_scores(op, formula) for op, formula in (flop_registry | cpu).items()}


def _without_scores(operation: Any, formula: Callable[..., Any]) -> Callable[..., Any]:
    name = str(operation)
    if "attention" not in name or "backward" not in name:
        return formula
    return lambda *args, **kwargs: formula(*args, **kwargs) * 4 // 5


def count_flops_per_unit(workload: Workload, batch: Batch) -> float | None:
    """Model FLOPs per real unit of one batch, by a forward and backward on fake tensors: no memory, no device time.

    Where the model cannot run on fake tensors (it looks at values), None: count a real step inside :class:`ModelFlops`
    then. Gradients are left as they were.

    Args:
        workload: Eager; on any device.
        batch: A micro-batch as ``collate`` makes it; its padding is computed by the model but is not a unit.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    parameters = list(workload.model.parameters())
    gradients = [parameter.grad for parameter in parameters]
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), ModelFlops() as counted:
            loss, units = workload.loss(workload.model, batch)
            loss.backward()  # type: ignore[no-untyped-call]
    except Exception:  # noqa: BLE001 - whatever a model does with a value it cannot have: no figure
        return None
    finally:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
    return counted.flops / units if units else None
