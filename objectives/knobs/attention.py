"""Which kernel computes attention."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from objectives.config import TrainingConfig
from objectives.knobs.knob import Choice, Facts, Knob
from objectives.knobs.precision import half_precision

if TYPE_CHECKING:
    from objectives.trial.setup import Setup

_BACKENDS = {
    "sdpa-math": "MATH",
    "sdpa-flash": "FLASH_ATTENTION",
    "sdpa-efficient": "EFFICIENT_ATTENTION",
    "sdpa-cudnn": "CUDNN_ATTENTION",
}
"""Values that force one backend of scaled_dot_product_attention, and PyTorch's name for it."""
_HALF_ONLY = ("sdpa-flash", "sdpa-cudnn", "flash_attention_2")
_SDPA = "PyTorch documentation, torch.nn.attention.sdpa_kernel and SDPBackend"


def _refuse(value: str, facts: Facts) -> str | None:
    if facts.device_kind == "cpu":
        return _refuse_on_cpu(value)
    if value == "flash_attention_2" and "flash-attn" not in facts.libraries:
        return "needs the package flash-attn, which is not installed"
    return None


def _refuse_on_cpu(value: str) -> str | None:
    if value in ("sdpa-efficient", "sdpa-cudnn", "flash_attention_2"):
        return f"{value} runs on CUDA devices only"
    return "flex_attention has no backward pass on a CPU" if value == "flex_attention" else None


def _clash(config: TrainingConfig, facts: Facts) -> str | None:
    if config.attention in _HALF_ONLY and facts.device_kind == "cuda" and not half_precision(config):
        return f"{config.attention} takes 16-bit tensors only: choose a mixed precision or bf16-true"
    return None


def _offer(value: str, facts: Facts) -> bool:
    return value == "sdpa" or (facts.device_kind == "cuda" and value not in ("eager", "sdpa-math"))


def _apply(setup: Setup, value: str) -> None:
    if not hasattr(setup.workload, "set_attention"):
        return
    setup.workload.set_attention("sdpa" if value in _BACKENDS else value)
    if value in _BACKENDS:
        setup.forward_contexts.append(lambda: _only(value))


def _only(value: str) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(getattr(SDPBackend, _BACKENDS[value]))


def _read_back(setup: Setup) -> str | None:
    """From the model's own configuration and the backends allowed inside a forward.

    None where the workload cannot set attention, or has no transformers configuration to read.
    """
    name = getattr(getattr(setup.model, "config", None), "_attn_implementation", None)
    if name is None or not hasattr(setup.workload, "set_attention"):
        return None
    return _with_backend(setup) if name == "sdpa" else str(name)


def _with_backend(setup: Setup) -> str:
    import torch

    allowed: Any = torch.backends.cuda  # these four flags hold on a CPU too
    with ExitStack() as stack:
        for make in setup.forward_contexts:
            stack.enter_context(make())
        state = {
            "sdpa-math": allowed.math_sdp_enabled(),
            "sdpa-flash": allowed.flash_sdp_enabled(),
            "sdpa-efficient": allowed.mem_efficient_sdp_enabled(),
            "sdpa-cudnn": allowed.cudnn_sdp_enabled(),
        }
    left = [value for value, enabled in state.items() if enabled]
    return left[0] if len(left) == 1 else "sdpa"


ATTENTION = Knob(
    name="attention",
    kind="choice",
    summary="Which kernel computes attention. Those that never build the whole score matrix need less memory.",
    default="sdpa",
    choices=(
        Choice(
            value="sdpa",
            meaning="torch's scaled_dot_product_attention; PyTorch picks the backend per call.",
            source="PyTorch documentation, torch.nn.functional.scaled_dot_product_attention",
        ),
        Choice(
            value="eager",
            meaning="Written out in matrix products and a softmax: the whole score matrix is built and kept.",
            source="Hugging Face documentation, transformers, attention interface",
        ),
        Choice(
            value="sdpa-math",
            meaning="scaled_dot_product_attention held to its plain backend: slow, for comparison.",
            source=_SDPA,
        ),
        Choice(
            value="sdpa-flash",
            meaning="scaled_dot_product_attention held to FlashAttention: memory linear in the length, no free mask.",
            source=_SDPA + "; Dao 2023, FlashAttention-2",
        ),
        Choice(
            value="sdpa-efficient",
            meaning="scaled_dot_product_attention held to the memory-efficient backend: linear memory, masks allowed.",
            source=_SDPA + "; Rabe and Staats 2021",
        ),
        Choice(
            value="sdpa-cudnn",
            meaning="scaled_dot_product_attention held to cuDNN's fused kernel.",
            source=_SDPA,
        ),
        Choice(
            value="flash_attention_2",
            meaning="The flash-attn package's own kernel, which also takes packed documents.",
            source="Dao 2023, FlashAttention-2; Hugging Face documentation, transformers, attention interface",
        ),
        Choice(
            value="flex_attention",
            meaning="A kernel generated by torch.compile from a mask function.",
            source="PyTorch documentation, torch.nn.attention.flex_attention",
        ),
    ),
    needs="set_attention",
    refuse=_refuse,
    clash=_clash,
    offer=_offer,
    apply=_apply,
    read_back=_read_back,
)
