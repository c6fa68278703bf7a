"""Integers, booleans and counters keep their values beside the fakes: shapes, masks and branches depend on them.

Whether the attention mask is built, which labels are padding, how many units a batch has: models and losses ask the
batch itself; optimizers ask their step, gradient scalers their scale. Those tensors are small, so each operator on
known ones is computed for real as well. Other floating-point numbers have no values; asked for one (a loss to be
printed) the answer is 0, and the prediction says that it guessed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from objectives.estimate.prediction import Unpredictable

LARGEST_KNOWN = 2**20
"""Elements of the largest tensor whose values are kept."""

_ATEN = torch.ops.aten
_ANSWERS = (_ATEN.equal.default, _ATEN.is_nonzero.default, _ATEN.allclose.default)
"""Operators that return a plain truth value."""
_SHAPED_BY_VALUES = (
    _ATEN.nonzero.default,
    _ATEN.masked_select.default,
    _ATEN._unique2.default,
    _ATEN.unique_consecutive.default,
    _ATEN.repeat_interleave.Tensor,
    _ATEN.bincount.default,
)
"""Operators whose result has a shape that only values tell."""


class KnownValues(TorchDispatchMode):
    """Enter it last, on top of the counter and the fake mode."""

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        super().__init__()
        self._fake_mode = fake_mode
        self.guesses = 0
        """How often a floating-point value was asked for."""

    def give(self, real: torch.Tensor) -> FakeTensor:
        """A fake of a real tensor, with its values where they are kept."""
        fake = self._fake_mode.from_tensor(real)
        if _keeps(real):
            fake.known = real  # type: ignore[attr-defined]
        return fake

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operator on the fakes and, where every value is known, for real."""
        kwargs = kwargs or {}
        if func is _ATEN._local_scalar_dense.default:
            return self._scalar(args[0])
        if func in _ANSWERS or func in _SHAPED_BY_VALUES:
            return self._from_values(func, args, kwargs)
        if func is _ATEN.index.Tensor:
            args = (args[0], [self._positions(index) for index in args[1]])
            args = (args[0], [part for parts in args[1] for part in parts])
        made = func(*args, **kwargs)
        if isinstance(made, torch.Tensor):
            self._follow(func, args, kwargs, made)
        elif isinstance(made, (list, tuple)) and made and all(_keeps(item) for item in made):
            self._follow_all(func, args, kwargs, made)
        elif func._schema.is_mutable:
            _for_real(func, args, kwargs)  # changes what it knows in place (an optimizer's steps)
        return made

    def _scalar(self, tensor: torch.Tensor) -> Any:
        known = getattr(tensor, "known", None)
        if known is not None:
            with torch._C._DisableTorchDispatch():
                return known.item()
        if tensor.is_floating_point() and isinstance(tensor, FakeTensor):
            self.guesses += 1
            return 0.0
        if not isinstance(tensor, FakeTensor):
            with torch._C._DisableTorchDispatch():
                return tensor.item()
        raise Unpredictable("its code asks for a whole number that only a run can know")

    def _from_values(self, func: Any, args: Any, kwargs: Any) -> Any:
        found = _for_real(func, args, kwargs)
        if found is None:
            raise Unpredictable(f"the result of {func} has a size (or an answer) that only a run can know")
        return tree_map(lambda item: self.give(item) if isinstance(item, torch.Tensor) else item, found)

    def _positions(self, index: Any) -> list[Any]:
        """An index as it is, or a known mask as the positions it selects: their number is then known as well."""
        known = getattr(index, "known", None)
        if known is None or known.dtype != torch.bool:
            return [index]
        with torch._C._DisableTorchDispatch():
            places = known.nonzero(as_tuple=True)
        return [self.give(place) for place in places]

    def _follow(self, func: Any, args: Any, kwargs: Any, made: torch.Tensor) -> None:
        known = _for_real(func, args, kwargs) if _keeps(made) else None
        if known is not None:
            made.known = known  # type: ignore[attr-defined]
        elif hasattr(made, "known"):
            del made.known  # changed in place by something that has no value

    def _follow_all(self, func: Any, args: Any, kwargs: Any, made: Any) -> None:
        for item, known in zip(made, _for_real(func, args, kwargs) or (), strict=False):
            item.known = known


def _keeps(item: Any) -> bool:
    if not isinstance(item, torch.Tensor):
        return False
    if item.dtype.is_floating_point or item.dtype.is_complex:
        return item.dim() == 0
    return item.numel() <= LARGEST_KNOWN


def _for_real(func: Any, args: Any, kwargs: Any) -> Any:
    """The operator on the values, on the CPU; None where a value is missing or the operator refuses."""
    leaves, _ = tree_flatten((args, kwargs))
    if any(isinstance(leaf, FakeTensor) and not hasattr(leaf, "known") for leaf in leaves):
        return None
    real_args, real_kwargs = tree_map(lambda leaf: getattr(leaf, "known", leaf), (args, kwargs))
    if "device" in real_kwargs:
        real_kwargs["device"] = torch.device("cpu")
    try:
        with torch._C._DisableTorchDispatch():
            return func(*real_args, **real_kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return None
