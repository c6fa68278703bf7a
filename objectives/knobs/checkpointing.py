"""Activation checkpointing: what the forward pass keeps for the backward pass, and what is computed twice instead.

Always the non-reentrant kind: the other one drops gradients where no input asks for one, and breaks under several
wrappers (cases I11, F08).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from objectives.knobs.knob import Choice, Knob

if TYPE_CHECKING:
    from torch import nn

    from objectives.trial.setup import Setup

_DOCUMENT = "PyTorch documentation, torch.utils.checkpoint"
_KEPT = (
    "aten.mm.default",
    "aten.addmm.default",
    "aten.bmm.default",
    "aten.baddbmm.default",
    "aten.convolution.default",
    "aten._scaled_dot_product_flash_attention.default",
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten._scaled_dot_product_efficient_attention.default",
    "aten._scaled_dot_product_cudnn_attention.default",
)
"""Results that ``selective`` keeps: the dear ones. Everything else (norms, activations, casts) is computed again."""


def can_checkpoint(workload: Any) -> bool:
    """Whether a workload can be checkpointed: a transformers model that supports it, or ``checkpoint_blocks()``."""
    return _library_way(workload.model) is not None or hasattr(workload, "checkpoint_blocks")


def _library_way(model: nn.Module) -> Any:
    """The model's own method to switch checkpointing on; None where it has none or says it does not support it."""
    if not getattr(model, "supports_gradient_checkpointing", False):
        return None
    enable = getattr(model, "activation_checkpointing_enable", None)  # transformers 5.2x
    if enable is not None:
        return enable
    older = getattr(model, "gradient_checkpointing_enable", None)
    return None if older is None else lambda options: older(gradient_checkpointing_kwargs=options)


def _keep(_context: Any, operator: Any, *_arguments: Any, **_keywords: Any) -> Any:
    from torch.utils.checkpoint import CheckpointPolicy

    return CheckpointPolicy.MUST_SAVE if str(operator) in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def _options(value: str) -> dict[str, Any]:
    """Keyword arguments of ``torch.utils.checkpoint.checkpoint``."""
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    if value == "full":
        return {"use_reentrant": False}
    return {"use_reentrant": False, "context_fn": functools.partial(create_selective_checkpoint_contexts, _keep)}


class CheckpointedForward:
    """Stands in for a block's ``forward`` and computes its inside again in the backward pass."""

    def __init__(self, forward: Any, options: dict[str, Any]) -> None:
        self.forward = forward
        self.options = options

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Runs the block; checkpointed where there will be a backward pass."""
        import torch
        from torch.utils.checkpoint import checkpoint

        if not torch.is_grad_enabled():
            return self.forward(*arguments, **keywords)
        return checkpoint(self.forward, *arguments, **self.options, **keywords)


def _apply(setup: Setup, value: str) -> None:
    if value == "none":
        return
    options = _options(value)
    _turn_cache_off(setup.model)
    enable = _library_way(setup.model)
    if enable is not None:
        enable(options)
        return
    blocks = setup.workload.checkpoint_blocks() if hasattr(setup.workload, "checkpoint_blocks") else []
    if not blocks:
        raise ValueError(f"activation_checkpointing={value}: {type(setup.model).__name__} needs checkpoint_blocks()")
    for block in blocks:
        block.forward = CheckpointedForward(block.forward, options)


def _turn_cache_off(model: nn.Module) -> None:
    """A cache of keys and values would keep what checkpointing is to throw away."""
    config = getattr(model, "config", None)
    if config is not None and hasattr(config, "use_cache"):
        config.use_cache = False


def _read_back(setup: Setup) -> str:
    """From the blocks themselves: which call ``checkpoint``, and with which options."""
    kinds = {kind for module in setup.model.modules() if (kind := _kind(module)) is not None}
    if not kinds:
        return "none"
    return kinds.pop() if len(kinds) == 1 else "several kinds"


def _kind(module: nn.Module) -> str | None:
    options: dict[str, Any] | None = None
    if isinstance(module.__dict__.get("forward"), CheckpointedForward):
        options = module.__dict__["forward"].options
    elif getattr(module, "gradient_checkpointing", False):
        options = getattr(getattr(module, "_gradient_checkpointing_func", None), "keywords", {})
    if options is None:
        return None
    if options.get("use_reentrant", True):
        return "reentrant"
    return "selective" if "context_fn" in options else "full"


CHECKPOINTING = Knob(
    name="activation_checkpointing",
    kind="choice",
    summary="What the forward pass keeps for the backward pass; the rest is computed twice.",
    default="none",
    choices=(
        Choice(value="none", meaning="Everything is kept: the most memory, nothing computed twice.", source=_DOCUMENT),
        Choice(
            value="selective",
            meaning="Matrix products, convolutions and attention are kept, everything between them is computed again.",
            source=_DOCUMENT + ", create_selective_checkpoint_contexts; Korthikanti et al. 2022",
        ),
        Choice(
            value="full",
            meaning="Only each block's input is kept: the least memory, about one more forward pass of work.",
            source=_DOCUMENT + "; Chen et al. 2016",
        ),
    ),
    needs="checkpoint_blocks",
    apply=_apply,
    read_back=_read_back,
)
