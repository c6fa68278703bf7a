"""What the running objects say about the configuration that is really in effect. What cannot be seen is left out."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

MOST_LEAVES = 12
DEEPEST = 3
FLATTENED = ("cu_seq_lens", "cu_seqlens", "position_ids", "seq_idx")
"""Inputs of a batch whose samples were joined into one row."""


class Reading:
    """Gathers what is seen in the first steps."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._root: Any = None
        self._iterator: Any = None
        self._leaves = 0
        self.compute: str | None = None
        self.autocast = False
        self.recomputed = False
        self.compiled = False
        self.loader: dict[str, Any] = {}
        self.loader_samples: int | None = None

    # The model

    @property
    def root(self) -> Any:
        """The module whose call begins a micro-batch; None while none was seen, or when it is gone."""
        return self._root() if self._root is not None else None

    def take_root(self, module: Any) -> None:
        """Remembers it, weakly."""
        self._root = None if module is None else weakref.ref(module)

    def see_leaf(self, module: Any) -> None:
        """Precision is read inside: accelerate switches autocast on below the outermost module."""
        if self._leaves >= MOST_LEAVES or module._modules:
            return
        weight = next(iter(module._parameters.values()), None)
        if weight is None or not weight.is_floating_point():
            return
        self._leaves += 1
        kind = weight.device.type
        if self._torch.is_autocast_enabled(kind):
            self.autocast, self.compute = True, str(self._torch.get_autocast_dtype(kind))
        elif not self.autocast:
            self.compute = str(weight.dtype)

    # The data

    def see_batch(self, iterator: Any, batch: Any, *, count: bool) -> None:
        """A batch has come from a ``DataLoader``. ``count``: its samples are needed, no call of the model tells."""
        if self._iterator is None or self._iterator() is not iterator:
            self._iterator = weakref.ref(iterator)
            sampler = getattr(iterator, "_index_sampler", None)
            workers = getattr(iterator, "_num_workers", None)
            self.loader = {
                "loader_workers": workers,
                "prefetch_factor": getattr(iterator, "_prefetch_factor", None) if workers else None,
                "pin_memory": getattr(iterator, "_pin_memory", None),
                "batch_size": getattr(sampler, "batch_size", None),
            }
        if count:
            self.loader_samples = size_of((batch,), {})[0] or self.loader["batch_size"]

    # The answer

    def applied(self, optimizer: Any) -> dict[str, Any]:
        """Knob values in effect, by knob, as far as they can be seen."""
        found = {
            "precision": self._precision(optimizer),
            "optimizer": _optimizer_word(optimizer),
            "attention": self._attention(),
            "activation_checkpointing": self._checkpointing(),
            "compile": None if self.compiled else "off",
            **{name: self.loader.get(name) for name in ("loader_workers", "prefetch_factor", "pin_memory")},
        }
        return {name: value for name, value in found.items() if value is not None}

    def _precision(self, optimizer: Any) -> str | None:
        kept = _most(parameter for group in optimizer.param_groups for parameter in group["params"])
        compute = self.compute
        if compute is None or kept is None:
            return None
        if "bfloat16" in compute:
            return "bf16-true" if "bfloat16" in kept else "bf16-mixed"
        if compute.endswith("float16"):
            return "fp16-mixed"
        return ("tf32" if self._tf32() else "fp32") if compute.endswith("float32") else None

    def _tf32(self) -> bool:
        """Whether 32-bit products run in TF32, by torch's own flag; the old and the new one may not be mixed."""
        matmul = getattr(self._torch.backends.cuda, "matmul", None)
        root = self.root
        weight = next(root.parameters(), None) if root is not None else None
        if weight is None or weight.device.type != "cuda":
            return False
        try:
            return str(getattr(matmul, "fp32_precision", "")) == "tf32" or bool(matmul.allow_tf32)  # type: ignore[union-attr]
        except RuntimeError:
            return False

    def _attention(self) -> str | None:
        module = self.root
        for name in ("module", "_orig_mod", "model"):
            if not hasattr(getattr(module, "config", None), "_attn_implementation"):
                module = getattr(module, name, module)
        return getattr(getattr(module, "config", None), "_attn_implementation", None)

    def _checkpointing(self) -> str | None:
        """``none`` or ``recomputed`` (which of the ways is not seen); None where modules cannot be watched."""
        if self.compiled or self.root is None:
            return None
        return "recomputed" if self.recomputed else "none"


def _most(parameters: Iterator[Any]) -> str | None:
    sizes: dict[str, int] = {}
    for parameter in parameters:
        sizes[str(parameter.dtype)] = sizes.get(str(parameter.dtype), 0) + parameter.numel()
    return max(sizes, key=lambda dtype: sizes[dtype]) if sizes else None


def _optimizer_word(optimizer: Any) -> str | None:
    name, group = type(optimizer).__name__.lower(), optimizer.param_groups[0]
    if "adamw" not in name:
        return None
    if "8bit" in name:
        return "adamw-8bit"
    ways = [way for way in ("fused", "foreach") if group.get(way)]
    return f"adamw-{ways[0]}" if ways else "adamw"


def size_of(arguments: Any, named: dict[str, Any]) -> tuple[int | None, int]:
    """Samples of a micro-batch and elements of the tensor they were counted in.

    That is its first tensor of integers (token ids), else its first one; the samples are its first dimension: None
    without a tensor, or where they were joined into one row.
    """
    first: tuple[int | None, int] = (None, 0)
    for tensor in _tensors((arguments, named), 0):
        size = (int(tensor.shape[0]), int(tensor.numel()))
        whole = not tensor.is_floating_point() and tensor.dtype.itemsize > 1
        if whole and tensor.dim() > 1:
            joined = size[0] == 1 and any(name.startswith(FLATTENED) for name in named)
            return (None, size[1]) if joined else size
        if first[0] is None:
            first = size
    return first


def real_tokens(batch: Any) -> int | None:
    """Tokens of a batch that are no padding, by its attention mask; None without ids, or where they are on a device."""
    if not hasattr(batch, "keys"):
        return None
    ids = batch["input_ids"] if "input_ids" in batch.keys() else None  # noqa: SIM118 - not every batch is a dict
    mask = batch["attention_mask"] if "attention_mask" in batch.keys() else None  # noqa: SIM118
    counted = mask if mask is not None else ids
    if counted is None or not hasattr(counted, "dim") or counted.device.type != "cpu" or counted.dim() != 2:
        return None
    return int(counted.sum()) if mask is not None else int(counted.numel())


def _tensors(values: Any, depth: int) -> Iterator[Any]:
    if hasattr(values, "is_floating_point") and hasattr(values, "dim"):
        if values.dim() > 0:
            yield values
        return
    if depth > DEEPEST:
        return
    if isinstance(values, (list, tuple)):
        inner: Any = values
    elif hasattr(values, "values") and hasattr(values, "keys"):
        inner = values.values()
    else:
        return
    for one in inner:
        yield from _tensors(one, depth + 1)
