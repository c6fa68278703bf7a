"""What the built-in objectives ask of a transformers model: its layers, and how to switch its attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


def checkpoint_layers(model: Any) -> list[nn.Module]:
    """The outermost layers that can be recomputed; empty when the model's class says that it cannot be checkpointed."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    if not model.supports_gradient_checkpointing:
        return []
    found = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    inner = {id(part) for layer in found for part in layer.modules() if part is not layer}
    return [layer for layer in found if id(layer) not in inner]


def attention_of(model: Any) -> str:
    """The attention in effect, read where transformers looks it up in every forward pass."""
    return str(model.config._attn_implementation)


def attention_setter(model: Any) -> Callable[[str], None] | None:
    """A function that switches the attention; None for a model without attention, or with nothing but its own.

    The function raises ``ValueError`` or ``ImportError`` where the model or this machine cannot run what is asked.
    """
    if not (type(model)._can_set_attn_implementation() and model._supports_sdpa and has_attention(model)):
        return None

    def switch(name: str) -> None:
        from transformers.utils import is_flash_attn_2_available

        if name == "flash_attention_2" and not is_flash_attn_2_available():
            raise ImportError(
                "flash_attention_2 needs the package flash-attn and a CUDA device (nothing is downloaded)"
            )
        model.set_attn_implementation(name)
        if attention_of(model) != name:
            raise ValueError(f"{type(model).__name__} stays with {attention_of(model)!r} when asked for {name!r}")

    return switch


def has_attention(model: Any) -> bool:
    """Whether any module is an attention (transformers names every one of them so)."""
    return any("Attention" in type(module).__name__ for module in model.modules())
