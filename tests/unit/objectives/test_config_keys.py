"""Misspelt keys of a model's configuration are refused; what any class knows, consumes or reads is not."""

from __future__ import annotations

from typing import Any

import pytest

from objectives.contract import ObjectiveError
from objectives.pretrained import model_source, refuse_unknown_keys


def check(**config: Any) -> None:
    refuse_unknown_keys(model_source({"config": config}, None))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "llama", "hiden_size": 64}, r"config\.hiden_size: llama .*Did you mean `hidden_size`"),
        ({"model_type": "llama", "num_layers": 2}, "`num_hidden_layers`"),
        ({"model_type": "gpt2", "n_embed": 64}, "`n_embd`"),
        ({"model_type": "vit", "img_size": 32}, "`image_size`"),
        ({"model_type": "convnext", "depth": [1, 1]}, "`depths`"),
        ({"model_type": "llama", "xyzzy": 1}, "remove it"),
        ({"model_type": "gemma3", "text_config": {"hiden_size": 8}}, r"text_config\.hiden_size"),
    ],
)
def test_a_misspelt_key_is_refused_with_the_nearest(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ObjectiveError, match=said):
        check(**config)


@pytest.mark.parametrize(
    "config",
    [
        {
            "model_type": "llama",
            "hidden_size": 64,
            "num_attention_heads": 4,
            "rope_theta": 5e5,
            "torch_dtype": "float32",
        },
        {"model_type": "gpt2", "hidden_size": 64, "num_hidden_layers": 1, "n_head": 2},
        {"model_type": "vit", "num_labels": 3, "image_size": 32},
        {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "transformers_version": "4.40.0"},
    ],
)
def test_fields_aliases_properties_and_older_names_pass(config: dict[str, Any]) -> None:
    check(**config)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gpt_neox", "mamba", "qwen3_moe", "vit", "convnext", "swin", "phi3"])
def test_everything_a_configuration_says_of_itself_is_known(kind: str) -> None:
    from transformers import AutoConfig

    own = {name: value for name, value in AutoConfig.for_model(kind).to_dict().items() if value is not None}
    check(**{**own, "model_type": kind})
