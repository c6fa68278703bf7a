"""Turns a built model and a batch into fakes: tensors with shape, type and device, but no memory behind them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


def replace_tensors(model: nn.Module, device: torch.device) -> list[torch.Tensor]:
    """Replaces every parameter, buffer and other tensor of the model; those that were one tensor stay one.

    Must run inside the fake mode. (A model built inside it fails: ViT's and ConvNext's constructors read values.)

    Returns:
        The new tensors, each once.
    """
    memo: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for module in model.modules():
        places: tuple[dict[str, Any], ...] = (module._parameters, module._buffers, module.__dict__)
        for place in places:
            for name, old in list(place.items()):
                if isinstance(old, torch.Tensor):
                    if id(old) not in memo:
                        memo[id(old)] = (_fake_like(old, device), old)  # the old one is held: its id must stay its own
                    place[name] = memo[id(old)][0]
    return [new for new, _ in memo.values()]


def _fake_like(old: torch.Tensor, device: torch.device) -> torch.Tensor:
    made = torch.empty_strided(old.size(), old.stride(), dtype=old.dtype, device=device)
    return nn.Parameter(made, requires_grad=old.requires_grad) if isinstance(old, nn.Parameter) else made


def convert(batch: Any, give: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The batch with every tensor in it replaced by what ``give`` returns; anything else stays."""
    if isinstance(batch, torch.Tensor):
        return give(batch)
    if isinstance(batch, Mapping):
        return {name: convert(item, give) for name, item in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(convert(item, give) for item in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(convert(item, give) for item in batch)
    return batch


@contextmanager
def taken_for_real() -> Iterator[None]:
    """Transformers asks whether a tensor is fake and then always builds the mask: here it must look at the values."""
    module: Any = sys.modules.get("transformers.utils.import_utils")
    original = getattr(module, "is_fake_tensor", None)
    if original is None:
        yield
        return
    module.is_fake_tensor = lambda _tensor: False
    try:
        yield
    finally:
        module.is_fake_tensor = original
