"""The language model on a CUDA device: chunks and packing change nothing, and the worst case is one."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from objectives.causal_lm import CausalLM

pytestmark = pytest.mark.gpu
CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


@pytest.fixture(scope="module")
def device() -> torch.device:
    return torch.device("cuda", 0)


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory, device: torch.device) -> Any:
    folder = tmp_path_factory.mktemp("lm")
    texts = [f"document {n}: " + "some words of text " * (n % 23 + 1) for n in range(200)]
    (folder / "docs.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    data = {"path": "docs.jsonl", "tokenizer": {"train": {"vocab_size": 400}}, "sequence_length": 64}
    objective = CausalLM(model={"config": CONFIG}, data=data, folder=str(folder), cache=str(folder / "cache"))
    objective.prepare(folder / "cache")
    return objective.build(device, 0)


def total(workload: Any, device: torch.device, rows: int) -> tuple[float, int, torch.Tensor]:
    """Loss and gradient over the first rows of the data, in micro-batches of four."""
    dataset, loss, units = workload.dataset(), 0.0, 0
    for start in range(0, rows, 4):
        batch = workload.collate([dataset[i] for i in range(start, min(rows, start + 4))])
        placed = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in batch.items()}
        part, count = workload.loss(workload.model, placed)
        part.backward()
        loss, units = loss + float(part.detach()), units + count
    gradient = torch.cat([p.grad.flatten() for p in workload.model.parameters()])
    workload.model.zero_grad(set_to_none=True)
    return loss, units, gradient


@pytest.mark.parametrize("attention", ["sdpa", "eager", "flex_attention"])
def test_packed_equals_padded_over_the_whole_data(workload: Any, device: torch.device, attention: str) -> None:
    workload.set_batching("padded")
    workload.set_attention("sdpa")
    rows = len(workload.dataset())
    loss, units, gradient = total(workload, device, rows)
    workload.set_attention(attention)
    workload.set_batching("packed")
    packed_loss, packed_units, packed_gradient = total(workload, device, len(workload.dataset()))
    assert packed_units == units
    assert packed_loss == pytest.approx(loss, rel=1e-4)
    assert float((packed_gradient - gradient).norm() / gradient.norm()) < 1e-3


def test_chunked_equals_full(workload: Any, device: torch.device) -> None:
    workload.set_attention("sdpa")
    workload.set_batching("padded")
    found = {}
    for name in ("full", "chunked"):
        workload.set_loss(name)
        found[name] = total(workload, device, 16)
    assert found["chunked"][0] == pytest.approx(found["full"][0], rel=1e-5)
    assert float((found["chunked"][2] - found["full"][2]).norm() / found["full"][2].norm()) < 1e-4


def test_no_real_batch_needs_more_than_the_longest(workload: Any, device: torch.device) -> None:
    workload.set_loss("full")
    workload.set_batching("padded")
    dataset = workload.dataset()
    peaks = []
    for batch in (
        workload.longest(4),
        *(workload.collate([dataset[i] for i in range(n, n + 4)]) for n in range(0, 80, 4)),
    ):
        placed = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in batch.items()}
        torch.cuda.reset_peak_memory_stats(device)
        workload.loss(workload.model, placed)[0].backward()
        peaks.append(torch.cuda.max_memory_allocated(device))
        workload.model.zero_grad(set_to_none=True)
    assert max(peaks[1:]) <= peaks[0] * 1.01
