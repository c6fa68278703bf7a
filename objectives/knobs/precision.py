"""Number formats of parameters, matrix products and gradients.

TF32 is set explicitly in every choice, on or off, because PyTorch's own defaults differ between matrix products (off),
convolutions (on) and versions (case C06). One function sets both of PyTorch's interfaces to the same word: reading the
old one after setting the new one alone raises, and parts of the compiler still read the old one.
"""

from __future__ import annotations

import os
import warnings
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any, Literal

from objectives.config import TrainingConfig
from objectives.knobs.knob import Choice, Facts, Knob

if TYPE_CHECKING:
    import torch

    from objectives.trial.setup import Setup

INITIAL_LOSS_SCALE = 2.0**16
"""The gradient scaler of ``fp16-mixed`` starts here (torch.amp.GradScaler's default) and halves at each overflow."""

_AMPERE = (8, 0)
_TF32_OVERRIDE = "NVIDIA_TF32_OVERRIDE"
"""cuBLAS and cuDNN obey this variable before any flag of PyTorch: 0 forbids TF32, 1 forces it."""


def _refuse(value: str, facts: Facts) -> str | None:
    if value == "tf32" and facts.device_kind == "cpu":
        return "TF32 is a format of NVIDIA GPUs (compute capability 8.0 and newer)"
    if value in ("tf32", "bf16-mixed", "bf16-true") and facts.capability is not None and facts.capability < _AMPERE:
        major, minor = facts.capability
        return f"{value} needs compute capability 8.0 or newer; this device has {major}.{minor}"
    return None


def _offer(value: str, facts: Facts) -> bool:
    if value == "bf16-true":
        return False  # small updates are lost to rounding: another training, never chosen in silence (case C12)
    return not (value == "fp16-mixed" and facts.device_kind == "cpu")  # case C09


def _autocast_dtype(value: str) -> torch.dtype | None:
    import torch

    return {"fp16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}.get(value)


def _apply(setup: Setup, value: str) -> None:
    import torch

    set_tf32(value == "tf32")
    setup.model.to(torch.bfloat16 if value == "bf16-true" else torch.float32)  # casts floating tensors alone
    dtype = _autocast_dtype(value)
    if dtype is not None:
        setup.forward_contexts.append(lambda: torch.autocast(setup.device.type, dtype=dtype))
    if value == "fp16-mixed":
        setup.scaler = torch.amp.GradScaler(setup.device.type, init_scale=INITIAL_LOSS_SCALE)


def set_tf32(on: bool) -> None:
    """Sets TF32 for matrix products, convolutions and recurrent layers of this process."""
    import torch

    word: Literal["tf32", "ieee"] = "tf32" if on else "ieee"
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # some versions call the shared setter deprecated; it keeps the two in agreement
        torch.set_float32_matmul_precision("high" if on else "highest")
    backends: Any = torch.backends
    backends.cuda.matmul.fp32_precision = word
    backends.cudnn.conv.fp32_precision = word
    backends.cudnn.rnn.fp32_precision = word


def tf32_in_effect() -> bool | None:
    """Whether TF32 is on for matrix products, convolutions and recurrent layers; None when they differ."""
    import torch

    override = os.environ.get(_TF32_OVERRIDE)
    if override in ("0", "1"):
        return override == "1"
    backends: Any = torch.backends
    parts = (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)
    found = {part.fp32_precision == "tf32" for part in parts}
    return found.pop() if len(found) == 1 else None


def _autocast_seen(setup: Setup) -> torch.dtype | None:
    """The autocast type inside the contexts every forward runs in; None when autocast is off there."""
    import torch

    kind = setup.device.type
    with ExitStack() as stack:
        for make in setup.forward_contexts:
            context: AbstractContextManager[Any] = make()
            stack.enter_context(context)
        return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def _read_back(setup: Setup) -> str:
    """From the parameters' types, the autocast state inside a forward, the scaler and the TF32 flags."""
    types = {str(p.dtype).removeprefix("torch.") for p in setup.model.parameters() if p.is_floating_point()}
    seen = str(_autocast_seen(setup)).removeprefix("torch.")
    state = (*sorted(types), seen, setup.scaler is not None)
    known: dict[tuple[Any, ...], str] = {
        ("float32", "float16", True): "fp16-mixed",
        ("float32", "bfloat16", False): "bf16-mixed",
        ("bfloat16", "None", False): "bf16-true",
    }
    if state == ("float32", "None", False):
        return _plain(setup)
    return known.get(state, f"parameters {'+'.join(sorted(types))}, autocast {seen}, scaler {setup.scaler is not None}")


def _plain(setup: Setup) -> str:
    if setup.device.type == "cpu":
        return "fp32"
    on = tf32_in_effect()
    return "tf32 in part" if on is None else "tf32" if on else "fp32"


def shape_conflict(*, tokens_per_micro_batch: int, multiple: int) -> str | None:
    """Reason why a matrix format refuses a micro-batch, or None.

    Args:
        tokens_per_micro_batch: Rows of the activations (micro-batch x sequence length).
        multiple: What the format's kernels divide rows by (16 for 8-bit floating point on Hopper).
    """
    if tokens_per_micro_batch % multiple == 0:
        return None
    return f"{tokens_per_micro_batch} tokens per micro-batch are not a multiple of {multiple}, which this format needs"


def half_precision(config: TrainingConfig) -> bool:
    """Whether attention sees 16-bit tensors."""
    return config.precision in ("fp16-mixed", "bf16-mixed", "bf16-true")


PRECISION = Knob(
    name="precision",
    kind="choice",
    summary="Number formats of parameters and matrix products.",
    default="fp32",
    choices=(
        Choice(
            value="fp32",
            meaning="Everything in 32-bit floating point, TF32 explicitly off.",
            source="PyTorch documentation, notes on CUDA semantics, TensorFloat-32",
        ),
        Choice(
            value="tf32",
            meaning="32-bit parameters; matrix products and convolutions round their inputs to 10 bits of mantissa.",
            source="PyTorch documentation, notes on CUDA semantics, TensorFloat-32",
        ),
        Choice(
            value="bf16-mixed",
            meaning="32-bit parameters; matrix products in bfloat16 under autocast. Range of fp32, no loss scaling.",
            source="PyTorch documentation, torch.amp; Kalamkar et al. 2019",
        ),
        Choice(
            value="fp16-mixed",
            meaning="32-bit parameters; matrix products in float16 under autocast, the loss scaled from 65536 down; "
            "values above 65504 overflow.",
            source="PyTorch documentation, torch.amp, GradScaler; Micikevicius et al. 2018",
        ),
        Choice(
            value="bf16-true",
            meaning="Parameters, gradients and optimizer state in bfloat16: half the memory; updates below 2^-8 of "
            "a weight round away, so check the loss curve.",
            source="Lightning documentation, precision 'bf16-true'; Zamirai et al. 2020 (bfloat16 training)",
        ),
    ),
    refuse=_refuse,
    offer=_offer,
    apply=_apply,
    read_back=_read_back,
)
