"""Tiny transformers models on a small corpus of very unequal documents: what several tests of objectives share."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from objectives.causal_lm import CausalLM
from objectives.data.batching import plan

CPU = torch.device("cpu")
SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "num_key_value_heads": 2, **SMALL},
    "qwen3": {"model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 8, **SMALL},
    "gpt2": {
        "model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4,
        "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
    },
}  # fmt: skip
GEMMA = {"model_type": "gemma2", "num_key_value_heads": 2, "head_dim": 8, **SMALL}
LENGTH = 48


def write_corpus(folder: Path) -> Path:
    """A JSON-lines corpus of very unequal documents in the folder, from the standard library's own words."""
    words = Path(argparse_source()).read_text(encoding="utf-8").split()
    numbers = np.random.default_rng(1)
    with (folder / "docs.jsonl").open("w", encoding="utf-8") as target:
        for _ in range(120):
            start, size = int(numbers.integers(0, len(words) - 80)), int(numbers.integers(2, 60))
            target.write(json.dumps({"text": " ".join(words[start : start + size])}) + "\n")
    return folder


def argparse_source() -> str:
    spec = importlib.util.find_spec("argparse")
    assert spec is not None
    assert spec.origin is not None
    return spec.origin


def causal_lm(corpus: Path, *, model: dict[str, Any] | None = None, **more: Any) -> CausalLM:
    data = {
        "path": "docs.jsonl",
        "tokenizer": {"train": {"vocab_size": 400}},
        "sequence_length": LENGTH,
        **more.pop("data", {}),
    }
    model = model if model is not None else {"config": FAMILIES["llama"]}
    return CausalLM(model=model, data=data, folder=str(corpus), cache=str(corpus / "cache"), **more)


def prepared(corpus: Path, **more: Any) -> Any:
    objective = causal_lm(corpus, **more)
    objective.prepare(corpus / "cache")
    return objective.build(CPU, 0)


def gradients(model: torch.nn.Module) -> torch.Tensor:
    found = torch.cat([p.grad.flatten().double() for p in model.parameters() if p.grad is not None])
    model.zero_grad(set_to_none=True)
    return found


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


def accumulate(workload: Any, dataset: Any, *, micro: int, steps: int, batching: str) -> tuple[torch.Tensor, int]:
    """The gradient of one global batch, the sum of losses over the number of units; and that number."""
    lengths = workload.lengths()
    sizes = {"micro_batch_size": micro, "accumulation_steps": steps}
    batch = next(plan(samples=len(dataset), lengths=lengths, batching=batching, **sizes))
    units = 0
    for part in batch:
        loss, count = workload.loss(workload.model, workload.collate([dataset[i] for i in part]))
        loss.backward()
        units += count
    return gradients(workload.model) / units, units
