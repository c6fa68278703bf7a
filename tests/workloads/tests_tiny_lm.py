"""A real, tiny Llama and a tiny convolution net behind the objective contract, for tests of knobs and capability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

VOCABULARY = 64
LENGTH = 12
PADDING = -100


def make_llama(**changes: Any) -> Any:
    """A Llama with two layers of width 32 (about 23 thousand parameters)."""
    from transformers import LlamaConfig, LlamaForCausalLM

    values = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 32,
    }
    return LlamaForCausalLM(LlamaConfig(**(values | changes)))


class Sentences:
    """Eight sentences of 5 to 12 random tokens, the same each time."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> list[int]:
        generator = torch.Generator().manual_seed(index)
        return torch.randint(1, VOCABULARY, (5 + index,), generator=generator).tolist()


class TinyWorkload:
    """The full contract over a transformers model, optional methods included."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._chosen: dict[str, str] = {"loss": "full", "batching": "padded", "tokens": "on-the-fly"}

    def dataset(self) -> Sentences:
        return Sentences()

    def lengths(self) -> list[int]:
        return [5 + index for index in range(8)]

    def collate(self, samples: list[list[int]]) -> dict[str, torch.Tensor]:
        width = max(map(len, samples))
        ids = torch.zeros(len(samples), width, dtype=torch.long)
        labels = torch.full((len(samples), width), PADDING)
        for row, sample in enumerate(samples):
            ids[row, : len(sample)] = torch.tensor(sample)
            labels[row, : len(sample)] = torch.tensor(sample)
        return {"input_ids": ids, "labels": labels}

    def loss(self, model: nn.Module, batch: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, int]:
        logits = model(input_ids=batch["input_ids"]).logits[:, :-1]
        labels = batch["labels"][:, 1:]
        pieces = logits.split(3, dim=1) if self._chosen["loss"] == "chunked" else (logits,)
        start, total = 0, logits.new_zeros(())
        for piece in pieces:
            wanted = labels[:, start : start + piece.shape[1]]
            total = total + nn.functional.cross_entropy(
                piece.flatten(0, 1).float(), wanted.flatten(), ignore_index=PADDING, reduction="sum"
            )
            start += piece.shape[1]
        return total, int((labels != PADDING).sum())

    def longest(self, micro_batch_size: int) -> dict[str, torch.Tensor]:
        return self.collate([[1] * LENGTH] * micro_batch_size)

    def set_attention(self, name: str) -> None:
        self.model.set_attn_implementation(name)  # type: ignore[operator]

    def set_loss(self, name: str) -> None:
        self._chosen["loss"] = name

    def set_batching(self, name: str) -> None:
        self._chosen["batching"] = name

    def set_tokens(self, name: str) -> None:
        self._chosen["tokens"] = name

    def in_effect(self) -> dict[str, str]:
        return dict(self._chosen)


class ConvolutionNet(nn.Module):
    """Two blocks with a 3x3 convolution each, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(channels, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for channels in (3, 8)
        )
        self.head = nn.Linear(8, 4)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            pictures = block(pictures)
        return self.head(pictures.mean((2, 3)))


class PictureWorkload:
    """A user's own plain workload: the required methods and ``checkpoint_blocks``."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def dataset(self) -> list[tuple[torch.Tensor, int]]:
        generator = torch.Generator().manual_seed(0)
        return [(torch.rand(3, 8, 8, generator=generator), index % 4) for index in range(8)]

    def collate(self, samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.stack([picture for picture, _ in samples]), torch.tensor([label for _, label in samples])

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, int]:
        pictures, labels = batch
        return nn.functional.cross_entropy(model(pictures).float(), labels, reduction="sum"), len(labels)

    def longest(self, micro_batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.collate(self.dataset()[:micro_batch_size])

    def checkpoint_blocks(self) -> list[nn.Module]:
        return list(self.model.blocks)  # type: ignore[arg-type]


class TinyLM:
    """The objective ``tests_tiny_lm:TinyLM``."""

    unit = "tokens"

    def build(self, device: torch.device, seed: int) -> TinyWorkload:
        torch.manual_seed(seed)
        return TinyWorkload(make_llama().to(device))


class Pictures:
    """The objective ``tests_tiny_lm:Pictures``."""

    unit = "samples"

    def build(self, device: torch.device, seed: int) -> PictureWorkload:
        torch.manual_seed(seed)
        return PictureWorkload(ConvolutionNet().to(device))


class WrongChunks(TinyLM):
    """Its chunked loss forgets the last chunk."""

    def build(self, device: torch.device, seed: int) -> TinyWorkload:
        workload = super().build(device, seed)
        right = workload.loss

        def loss(model: nn.Module, batch: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, int]:
            total, units = right(model, batch)
            return (total * 0.5 if workload.in_effect()["loss"] == "chunked" else total), units

        workload.loss = loss  # type: ignore[method-assign]
        return workload


class CheckpointBreaks(Pictures):
    """Recomputation that is not what the forward pass was, as under some compilers (I12)."""

    def build(self, device: torch.device, seed: int) -> PictureWorkload:
        workload = super().build(device, seed)
        right, block, calls = workload.loss, workload.model.blocks[0], [0]  # type: ignore[index]

        class Changing(nn.Module):
            def forward(self, pictures: torch.Tensor) -> torch.Tensor:
                calls[0] += 1
                made = pictures.sin() if calls[0] % 2 else pictures.double().sin().float()
                return made.cos()

        block.insert(1, Changing())  # type: ignore[operator]
        workload.loss = right  # type: ignore[method-assign]
        return workload


class GradientsLost(Pictures):
    """Its blocks, when checkpointed, cut the graph: trainable parameters get no gradient and nothing raises (I11)."""

    def build(self, device: torch.device, seed: int) -> PictureWorkload:
        workload = super().build(device, seed)
        blocks = list(workload.model.blocks)  # type: ignore[arg-type]

        def cut(block: nn.Module) -> nn.Module:
            plain = block.forward

            def forward(pictures: torch.Tensor) -> torch.Tensor:
                made = plain(pictures)
                return made.detach() if in_checkpoint() else made

            block.forward = forward  # type: ignore[method-assign]
            return block

        workload.checkpoint_blocks = lambda: [cut(blocks[0])]  # type: ignore[method-assign]
        return workload


def in_checkpoint() -> bool:
    """Whether non-reentrant checkpointing has hooks on the autograd graph right now."""
    return bool(torch._C._autograd._top_saved_tensors_default_hooks(False))


class RowsOfSixteen(TinyLM):
    """Its kernel takes rows in multiples of 16 only, 250 tokens a sample (C07)."""

    def build(self, device: torch.device, seed: int) -> TinyWorkload:
        workload = super().build(device, seed)
        right = workload.loss

        def loss(model: nn.Module, batch: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, int]:
            rows = batch["input_ids"].shape[0] * 250
            assert rows % 16 == 0, f"tensor dimensions must be divisible by 16, but got tensor with dims [{rows}, 256]"
            return right(model, batch)

        workload.loss = loss  # type: ignore[method-assign]
        return workload


class Dies(TinyLM):
    """Takes the process down with the attention written out."""

    def build(self, device: torch.device, seed: int) -> TinyWorkload:
        workload = super().build(device, seed)
        right = workload.set_attention

        def set_attention(name: str) -> None:
            if name == "eager":
                import os
                import signal

                os.kill(os.getpid(), signal.SIGSEGV)
            right(name)

        workload.set_attention = set_attention  # type: ignore[method-assign]
        return workload


class RunsOut(TinyLM):
    """Says what a device says when its memory is full, with the chunked loss."""

    def build(self, device: torch.device, seed: int) -> TinyWorkload:
        workload = super().build(device, seed)
        right = workload.set_loss

        def set_loss(name: str) -> None:
            if name == "chunked":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
            right(name)

        workload.set_loss = set_loss  # type: ignore[method-assign]
        return workload


class NoData(TinyLM):
    """Its data cannot be read."""

    def build(self, device: torch.device, seed: int) -> TinyWorkload:
        workload = super().build(device, seed)

        def dataset() -> Sentences:
            raise FileNotFoundError("no file matches corpus/*.jsonl")

        workload.dataset = dataset  # type: ignore[method-assign]
        return workload


class RenamedHead(TinyLM):
    """Its chunked loss wraps the head, so the head's weight gets another name."""

    def build(self, device: torch.device, seed: int) -> TinyWorkload:
        workload = super().build(device, seed)
        right = workload.set_loss

        def set_loss(name: str) -> None:
            right(name)
            if name == "chunked":
                workload.model.lm_head = nn.Sequential(workload.model.lm_head)

        workload.set_loss = set_loss  # type: ignore[method-assign]
        return workload
