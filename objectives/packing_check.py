"""Whether a model keeps packed documents apart, found by asking it: a few tokens, no gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from objectives.chunked_loss import is_fake
from objectives.data.collate import collate_packed, collate_padded

if TYPE_CHECKING:
    from objectives.causal_lm import LanguageWorkload

_LEAKS = {torch.float32: 1e-5, torch.float64: 1e-9}
_DIFFERS = {torch.float32: 1e-3, torch.float64: 1e-6}
_COARSE_LEAKS, _COARSE_DIFFERS = 1e-2, 1e-1
"""Relative to the logits' own size, for half precisions."""


def mixes_documents(workload: LanguageWorkload) -> str | None:
    """Why this model cannot train on packed rows; None when it can (or has no values to ask with).

    Two packed rows whose second documents are equal and whose first ones differ must give the second document the same
    answer, and that answer must be the one it gets alone.
    """
    parameter = next(iter(workload.model.parameters()))
    if parameter.is_meta or is_fake(parameter):
        return None
    leaks = _LEAKS.get(parameter.dtype, _COARSE_LEAKS)
    differs = _DIFFERS.get(parameter.dtype, _COARSE_DIFFERS)
    first, other, second = (np.random.default_rng(seed).integers(0, 16, size) for seed, size in enumerate((5, 5, 4)))
    try:
        packed = _answer(workload, collate_packed([[first, second], [other, second]], 0, 12))[:, 5:9]
        alone = _answer(workload, collate_padded([second], 0))[0]
    except TypeError as error:
        return f"it takes no position ids ({error})"
    scale = float(alone.std())
    if float((packed[0] - packed[1]).abs().max()) > leaks * scale:
        return "a document sees the one before it in its row"
    if float((packed[0] - alone).abs().max()) > differs * scale:
        return "a document's positions do not start anew"
    return None


@torch.no_grad()
def _answer(workload: LanguageWorkload, batch: dict[str, Any]) -> torch.Tensor:
    """What leaves the model (logits, or hidden states while the loss is chunked), shape (rows, tokens, width)."""
    model: Any = workload.model
    rows, tokens = batch["input_ids"].shape
    device = next(iter(model.parameters())).device
    placed = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in batch.items()}
    training = model.training
    model.eval()
    try:
        answer: torch.Tensor = model(**workload._inputs(placed), use_cache=False).logits
        return answer.float().reshape(rows, tokens, -1).cpu()
    finally:
        model.train(training)
