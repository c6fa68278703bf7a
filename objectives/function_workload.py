"""What a person's function returns, as a workload: one as it is, or model, data set and loss with the rest made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from objectives.contract import ObjectiveError, Workload

if TYPE_CHECKING:
    import torch
    from torch import nn

NEEDED = ("model", "dataset", "collate", "loss", "longest")
LOOKED_AT = 2048
"""Samples of which the largest stands for the worst case."""
FEWEST_BLOCKS = 2


def as_workload(made: Any, name: str) -> Workload:
    """The workload that a function's answer is.

    Args:
        made: A workload, or ``(model, dataset, loss)`` or ``(model, dataset, loss, collate)``.
        name: The function's, for messages.

    Raises:
        ObjectiveError: It is neither.
    """
    if isinstance(made, tuple):
        return _of_parts(made, name)
    missing = [each for each in NEEDED if not hasattr(made, each)]
    if missing:
        raise ObjectiveError(
            f"{name}() returned a {type(made).__name__} without {', '.join(missing)}: return a workload "
            "(the reference, `objective` of your own) or a tuple (model, dataset, loss)"
        )
    workload: Workload = made
    return workload


def _of_parts(made: tuple[Any, ...], name: str) -> Workload:
    from torch import nn

    if len(made) not in (3, 4):
        raise ObjectiveError(f"{name}() returned {len(made)} things: return (model, dataset, loss) or also a collate")
    model, dataset, loss = made[:3]
    if not isinstance(model, nn.Module):
        raise ObjectiveError(f"{name}() returned a {type(model).__name__} where the model belongs (a torch.nn.Module)")
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise ObjectiveError(
            f"{name}() returned a {type(dataset).__name__} as data set: it needs a length and an index"
        )
    if not callable(loss):
        raise ObjectiveError(f"{name}() returned a {type(loss).__name__} as loss: return a function of (model, batch)")
    return PartsWorkload(model, dataset, loss, made[3] if len(made) == 4 else None)


class PartsWorkload:
    """A workload of a model, a data set and a loss.

    ``loss(model, batch)`` returns the sum over units with their number, or a mean over the samples of the batch.
    """

    def __init__(
        self, model: nn.Module, dataset: Any, loss: Callable[..., Any], collate: Callable[..., Any] | None
    ) -> None:
        from torch.utils.data import default_collate

        self.model = model
        self._dataset, self._loss, self._collate = dataset, loss, collate or default_collate
        self._largest: Any = None
        blocks = repeated_blocks(model)
        if blocks:
            self.checkpoint_blocks = lambda: blocks
        setter = _attention_setter(model)
        if setter is not None:
            self.set_attention = setter

    def dataset(self) -> Any:
        """As given."""
        return self._dataset

    def collate(self, samples: list[Any]) -> Any:
        """One micro-batch; PyTorch's own collation where none was given."""
        return self._collate(samples)

    def loss(self, model: nn.Module, batch: Any) -> tuple[torch.Tensor, int]:
        """The sum of the loss and the number of units; a mean becomes a sum over the samples of the batch."""
        found = self._loss(model, batch)
        if isinstance(found, tuple):
            total, units = found
            return total, int(units)
        samples = batch_samples(batch)
        return found * samples, samples

    def longest(self, micro_batch_size: int) -> Any:
        """The largest of the first samples, so many times."""
        if self._largest is None:
            seen = (self._dataset[index] for index in range(min(len(self._dataset), LOOKED_AT)))
            self._largest = max(seen, key=elements)
        return self._collate([self._largest] * micro_batch_size)


def elements(sample: Any) -> int:
    """Elements of all tensors, arrays and lists in a sample."""
    if isinstance(sample, dict):
        return sum(map(elements, sample.values()))
    if isinstance(sample, (list, tuple)):
        return sum(map(elements, sample)) or len(sample)
    if hasattr(sample, "numel"):
        return int(sample.numel())
    return int(getattr(sample, "size", 1)) if isinstance(getattr(sample, "size", 1), int) else 1


def batch_samples(batch: Any) -> int:
    """Samples of a batch: the first dimension of its first tensor.

    Raises:
        ObjectiveError: There is no tensor in it.
    """
    import torch

    if isinstance(batch, torch.Tensor):
        return len(batch)
    parts = batch.values() if hasattr(batch, "values") else batch if isinstance(batch, (list, tuple)) else ()
    for part in parts:
        if isinstance(part, torch.Tensor) and part.dim():
            return len(part)
    raise ObjectiveError(
        "the loss returned a mean, and the batch has no tensor to count samples in: return (sum, count)"
    )


def repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """What checkpointing recomputes: a transformers model's layers, else the longest list of like modules."""
    from torch import nn

    if hasattr(model, "supports_gradient_checkpointing"):
        from objectives.transformers_model import checkpoint_layers

        return checkpoint_layers(model)
    found: list[nn.Module] = []
    for module in model.modules():
        children = list(module.children()) if isinstance(module, (nn.ModuleList, nn.Sequential)) else []
        alike = [child for child in children if type(child) is type(children[0]) and _has_parameters(child)]
        if len(alike) >= FEWEST_BLOCKS and len(alike) == len(children) and len(alike) > len(found):
            found = alike
    return found


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _attention_setter(model: nn.Module) -> Callable[[str], None] | None:
    if not hasattr(model, "set_attn_implementation"):
        return None
    from objectives.transformers_model import attention_setter

    return attention_setter(model)
