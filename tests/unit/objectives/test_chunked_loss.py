"""The loss without whole logits equals the one with them, gradients included."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from objectives.chunked_loss import CHUNK_NUMBERS, chunk_tokens, chunked_cross_entropy_sum, cross_entropy_sum
from objectives.data.collate import IGNORED


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 700])
@pytest.mark.parametrize("bias", [True, False])
def test_equals_the_full_loss_in_value_and_gradient(tokens: int, bias: bool) -> None:
    torch.manual_seed(0)
    head = nn.Linear(16, 50, bias=bias)
    hidden = torch.randn(tokens, 16, requires_grad=True)
    targets = torch.randint(0, 50, (tokens,))
    targets[:: max(2, tokens // 5)] = IGNORED
    full = cross_entropy_sum(head(hidden), targets)
    wanted = torch.autograd.grad(full, [hidden, *head.parameters()])
    chunked = chunked_cross_entropy_sum(head, hidden, targets)
    found = torch.autograd.grad(chunked, [hidden, *head.parameters()])
    torch.testing.assert_close(chunked, full, rtol=1e-6, atol=1e-5)
    for one, other in zip(found, wanted, strict=True):
        assert float((one - other).norm()) <= 1e-6 * float(other.norm())


def test_half_precision_sums_in_fp32() -> None:
    head = nn.Linear(16, 50, bias=False).bfloat16()
    loss = chunked_cross_entropy_sum(head, torch.randn(100, 16).bfloat16(), torch.zeros(100, dtype=torch.long))
    assert loss.dtype == torch.float32


def test_chunks_bound_the_logits() -> None:
    assert chunk_tokens(4096, 4096) == 512
    assert chunk_tokens(10, 4096) == 64
    assert chunk_tokens(10**6, 128_000) * 128_000 <= CHUNK_NUMBERS
