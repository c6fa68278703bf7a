"""A model's shape: the few numbers that decide how much it computes and keeps. From any configuration. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMES: Mapping[str, tuple[str, ...]] = {
    "model_type": ("model_type",),
    "hidden_size": ("hidden_size", "n_embd", "d_model", "dim"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_key_value_heads",),
    "intermediate_size": ("intermediate_size", "n_inner", "d_ff", "ffn_dim"),
    "vocab_size": ("vocab_size",),
    "image_size": ("image_size",),
    "num_experts": ("num_experts", "num_local_experts", "n_routed_experts"),
}
"""What a shape holds, and the names model families give it."""


def model_shape(config: Mapping[str, Any]) -> dict[str, Any]:
    """The shape of a transformers configuration as plain data; only what it says.

    Args:
        config: ``config.json``, or ``to_dict()`` of a configuration. The text part of a multimodal one counts.
    """
    inner = config.get("text_config")
    values = {**config, **inner} if isinstance(inner, Mapping) else config
    found = {
        name: next((values[key] for key in keys if isinstance(values.get(key), (int, str))), None)
        for name, keys in NAMES.items()
    }
    return {name: value for name, value in found.items() if value is not None and not isinstance(value, bool)}
