"""Predicted against measured on a CUDA device: the fakes are CUDA's, so are the kernels they stand for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from objectives import knobs
from objectives.config import TrainingConfig
from objectives.estimate import Estimator, Prediction
from objectives.measure.memory import open_memory
from objectives.trial.setup import Setup
from objectives.trial.trainer import Trainer
from objectives.trial.worst_case import run_worst_case

pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda", 0)
MIB = 2**20
LENGTH = 512
SHAPE = {
    "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 6, "num_attention_heads": 12,
    "vocab_size": 16384, "max_position_embeddings": LENGTH,
}  # fmt: skip


class Language:
    """A Llama with 65 million parameters on random tokens."""

    unit = "tokens"

    def build(self, device: torch.device, seed: int) -> Any:
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(seed)
        with device:
            return Rows(LlamaForCausalLM(LlamaConfig(**SHAPE)))


class Rows:
    def __init__(self, model: Any) -> None:
        self.model = model

    def set_attention(self, name: str) -> None:
        self.model.set_attn_implementation(name)

    def loss(self, model: Any, batch: torch.Tensor) -> tuple[torch.Tensor, int]:
        logits = model(input_ids=batch, use_cache=False).logits.flatten(0, 1)
        return torch.nn.functional.cross_entropy(logits.float(), batch.flatten(), reduction="sum"), batch.numel()

    def longest(self, micro_batch_size: int) -> torch.Tensor:
        return torch.ones(micro_batch_size, LENGTH, dtype=torch.long)


def measured(wanted: TrainingConfig) -> Any:
    memory = open_memory(DEVICE)
    memory.warm(1)
    memory.start()
    setup = Setup(device=DEVICE, workload=Language().build(DEVICE, 0), config=wanted)
    knobs.apply_all(setup)
    trainer = Trainer(setup, max_grad_norm=1.0)
    batch = setup.workload.longest(wanted.micro_batch_size)
    run_worst_case(
        trainer, batch, accumulation_steps=wanted.accumulation_steps, synchronize=lambda: torch.cuda.synchronize()
    )
    return memory.reading()


@pytest.fixture(scope="module")
def estimator() -> Estimator:
    return Estimator(Language(), device=DEVICE)


@pytest.mark.parametrize(
    "values",
    [
        {"precision": "fp32"},
        {"precision": "tf32", "optimizer": "adamw-foreach"},
        {"precision": "bf16-mixed"},
        {"precision": "bf16-mixed", "activation_checkpointing": "full", "optimizer": "adamw-fused"},
        {"precision": "bf16-mixed", "activation_checkpointing": "selective"},
        {"precision": "bf16-mixed", "attention": "eager"},
        {"precision": "bf16-mixed", "attention": "sdpa-efficient"},
        {"precision": "fp16-mixed"},
        {"precision": "bf16-true", "optimizer": "adamw-fused"},
    ],
    ids=lambda values: "-".join(values.values()),
)
def test_the_allocators_peak_is_predicted(estimator: Estimator, values: dict[str, str]) -> None:
    wanted = TrainingConfig(micro_batch_size=8, accumulation_steps=2, **values)
    made: Prediction = estimator.predict(wanted)
    assert made.note is None
    assert made.peak_memory_bytes is not None
    reading = measured(wanted)
    workspace = 64 * MIB  # cuBLAS takes its own from the allocator
    assert made.peak_memory_bytes == pytest.approx(reading.peak_allocated_bytes, rel=0.03, abs=workspace)
    assert made.peak_memory_bytes < reading.peak_reserved_bytes * 1.03


def test_no_byte_of_the_device_is_taken(estimator: Estimator) -> None:
    before = torch.cuda.memory_allocated(DEVICE)
    made = estimator.predict(TrainingConfig(micro_batch_size=64, accumulation_steps=2, precision="bf16-mixed"))
    assert made.peak_memory_bytes
    assert torch.cuda.memory_allocated(DEVICE) == before
