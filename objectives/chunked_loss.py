"""Cross-entropy without the whole logits: chunk by chunk through the output layer, recomputed in the backward pass.

For a vocabulary of 128,000 the logits of 4,096 tokens take 2 GiB in fp32, and their gradient as much again: often the
peak of a language model. The model's output layer is replaced by one that hands the hidden states through, so that
everything else of the model (compilation, checkpointing, adapters) stays as it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from objectives.data.collate import IGNORED

CHUNK_NUMBERS = 2**25
"""Logits of one chunk at most: 128 MiB in fp32."""
FEWEST_CHUNKS = 8
SMALLEST_CHUNK = 64
"""Tokens; below this the matrix product is no longer efficient."""


class HiddenStates(nn.Module):
    """Stands where the output layer stood and hands its input through. Keeps the layer, and with it tied weights."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    @property
    def weight(self) -> torch.Tensor:
        """The output layer's weight, where library code looks for it."""
        weight: torch.Tensor = self.head.weight  # type: ignore[assignment]
        return weight

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The input, untouched."""
        return hidden


class _Fixed(nn.Module):
    """An output layer that answers with given logits: what leaves the model then shows what it does to them."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, _hidden: torch.Tensor) -> torch.Tensor:
        return self.logits


def cross_entropy_sum(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The sum over real targets, in fp32. Shapes (tokens, vocabulary) and (tokens,)."""
    return functional.cross_entropy(logits.float(), targets, ignore_index=IGNORED, reduction="sum")


def chunked_cross_entropy_sum(head: nn.Module, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The same sum from hidden states, shape (tokens, width); only one chunk's logits exist at a time."""
    size = chunk_tokens(len(targets), _vocabulary(head))
    total = torch.zeros((), dtype=torch.float32, device=hidden.device)
    for part, wanted in zip(torch.split(hidden, size), torch.split(targets, size), strict=True):
        total = total + checkpoint(_chunk, head, part, wanted, use_reentrant=False, preserve_rng_state=False)
    return total


def _chunk(head: nn.Module, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return cross_entropy_sum(head(hidden), targets)


def _vocabulary(head: nn.Module) -> int:
    weight: torch.Tensor = head.weight  # type: ignore[assignment]
    return weight.shape[0]


def chunk_tokens(tokens: int, vocabulary: int) -> int:
    """Tokens per chunk: an eighth of the micro-batch, less for a large vocabulary, never fewer than 64."""
    return max(SMALLEST_CHUNK, min(-(-tokens // FEWEST_CHUNKS), CHUNK_NUMBERS // vocabulary))


def refusal(base: Any) -> str | None:
    """Why the loss of this transformers model cannot be chunked; None when it can.

    The model is run on a few tokens with an output layer that answers with known logits. They must come out as they
    went in: a model that caps or shifts its logits afterwards (Gemma 2's softcapping) would do that to the hidden
    states. A plain factor (Cohere, Granite) commutes with an output layer without bias.
    """
    head = base.get_output_embeddings()
    if head is None or getattr(head, "weight", None) is None:
        return "the model has no output layer of its own"
    if head.weight.is_meta or is_fake(head.weight):
        return None  # nothing to compare on without values; a run compares for itself
    sent = torch.randn((1, 4, _vocabulary(head)), generator=torch.Generator().manual_seed(0)) * 50
    sent = sent.bfloat16().float()  # numbers every precision holds exactly
    came = _answer(base, head, sent.to(head.weight.device))
    if came is None or came.shape != sent.shape:
        return "the model does not make its logits by its output layer alone"
    factor = float((came / sent).median())
    if not torch.allclose(came, factor * sent, rtol=1e-4 if head.weight.dtype == torch.float32 else 2e-2, atol=0):
        return "the model changes its logits after the output layer (softcapping or the like)"
    if factor != 1.0 and getattr(head, "bias", None) is not None:
        return "the model scales its logits after an output layer with a bias"
    return None


@torch.no_grad()
def _answer(base: Any, head: nn.Module, logits: torch.Tensor) -> torch.Tensor | None:
    training = base.training
    fixed = _Fixed(logits)
    base.eval()
    base.set_output_embeddings(fixed)
    try:
        tokens = torch.zeros((1, logits.shape[1]), dtype=torch.long, device=logits.device)
        answer: torch.Tensor = base(input_ids=tokens, use_cache=False).logits
        return answer.float().cpu()
    except (TypeError, ValueError):
        return None
    finally:
        base.set_output_embeddings(head)
        base.train(training)


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor has a shape but no values."""
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(tensor, FakeTensor)
