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
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from objectives.estimate.prediction import Unpredictable

LARGEST_KNOWN = 2**20
"""Elements of the largest tensor whose values are kept."""

_ATEN = torch.ops.aten
_DEVICE = torch.ops.prim.device.default
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


class KnownValues(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Enter it last, on top of the counter and the fake mode."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and the wrapper costs a tenth of the time

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._fake_mode = fake_mode
        self.guesses = 0
        """How often a floating-point value was asked for."""
        self._outdated: dict[int, torch.UntypedStorage] = {}

    def _value(self, tensor: Any) -> torch.Tensor | None:
        """The values of a fake; None when they are not known (any more)."""
        known: torch.Tensor | None = getattr(tensor, "known", None)
        if known is None or known.untyped_storage()._cdata in self._outdated:
            return None
        return known

    def _forget(self, known: torch.Tensor) -> None:
        """Its memory was changed by something without a value: every view of it is out of date."""
        storage = known.untyped_storage()
        self._outdated[storage._cdata] = storage  # held, so that no other storage gets its number

    def give(self, real: torch.Tensor) -> FakeTensor:
        """A fake of a real tensor, with its values where they are kept; a fake as it is."""
        if isinstance(real, FakeTensor):
            return real
        fake = self._fake_mode.from_tensor(real)
        if _keeps(real):
            with torch._C._DisableTorchDispatch():
                fake.known = real.detach().clone().cpu()  # type: ignore[attr-defined]
        return fake

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operator on the fakes and, where every value is known, for real."""
        if func is _DEVICE and isinstance(args[0], FakeTensor) and not self._fake_mode.in_kernel_invocation:
            return args[
                0
            ].fake_device  # autograd asks for it at every node: two of three operators, a third of the time
        kwargs = kwargs or {}
        if func is _ATEN._local_scalar_dense.default:
            return self._scalar(args[0])
        if func in _ANSWERS or func in _SHAPED_BY_VALUES:
            return self._from_values(func, args, kwargs)
        if func is _ATEN._grouped_mm.default and args[0].dtype != torch.bfloat16:
            return _grouped_product(*args, **kwargs)
        if func is _ATEN.index.Tensor:
            args = (args[0], [part for index in args[1] for part in self._positions(index)])
        made = func(*args, **kwargs)
        if isinstance(made, torch.Tensor):
            self._follow(func, args, kwargs, made)
        elif isinstance(made, (list, tuple)) and made and all(_keeps(item) for item in made):
            self._follow_all(func, args, kwargs, made)
        elif func._schema.is_mutable:
            self._for_real(func, args, kwargs)  # changes what it knows in place (an optimizer's steps)
        return made

    def _scalar(self, tensor: torch.Tensor) -> Any:
        known = self._value(tensor) if isinstance(tensor, FakeTensor) else tensor
        if known is not None:
            with torch._C._DisableTorchDispatch():
                return known.item()
        if tensor.is_floating_point():
            self.guesses += 1
            return 0.0
        raise Unpredictable("its code asks for a whole number that only a run can know")

    def _from_values(self, func: Any, args: Any, kwargs: Any) -> Any:
        found = self._for_real(func, args, kwargs)
        if found is None:
            raise Unpredictable(f"the result of {func} has a size (or an answer) that only a run can know")
        return tree_map(lambda item: self.give(item) if isinstance(item, torch.Tensor) else item, found)

    def _positions(self, index: Any) -> list[Any]:
        """An index as it is, or a known mask as the positions it selects: their number is then known as well."""
        known = self._value(index)
        if known is None or known.dtype != torch.bool:
            return [index]
        with torch._C._DisableTorchDispatch():
            places = known.nonzero(as_tuple=True)
        return [self.give(place) for place in places]

    def _follow(self, func: Any, args: Any, kwargs: Any, made: torch.Tensor) -> None:
        known = self._for_real(func, args, kwargs) if _keeps(made) else None
        if known is not None:
            made.known = known  # type: ignore[attr-defined]
        elif (old := getattr(made, "known", None)) is not None:
            self._forget(old)

    def _follow_all(self, func: Any, args: Any, kwargs: Any, made: Any) -> None:
        for item, known in zip(made, self._for_real(func, args, kwargs) or (), strict=False):
            item.known = known

    def _for_real(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The operator on the values, on the CPU; None where a value is missing or the operator refuses."""
        leaves, shape = tree_flatten((args, kwargs))
        values = [self._value(leaf) if isinstance(leaf, FakeTensor) else leaf for leaf in leaves]
        if any(value is None and leaf is not None for value, leaf in zip(values, leaves, strict=True)):
            return None
        real_args, real_kwargs = tree_unflatten(values, shape)
        if "device" in real_kwargs:
            real_kwargs["device"] = torch.device("cpu")
        try:
            with torch._C._DisableTorchDispatch():
                return func(*real_args, **real_kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            return None


def _grouped_product(
    a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None = None, bias: Any = None, out_dtype: Any = None
) -> torch.Tensor:
    """The result of a mixture of experts' grouped product, which PyTorch's own fake knows in bfloat16 only.

    A 2-d operand is divided into groups by ``offs``; a 3-d one holds one matrix a group.
    """
    if a.dim() == 2 and b.dim() == 2:
        assert offs is not None, "two undivided operands are no grouped product"
        shape = (offs.numel(), a.size(0), b.size(1))
    elif a.dim() == 3 and b.dim() == 3:
        shape = (a.size(0), a.size(1), b.size(2))
    else:
        shape = (a.size(-2), b.size(-1))  # type: ignore[assignment]
    return a.new_empty(shape, dtype=out_dtype or a.dtype)


def _keeps(item: Any) -> bool:
    if not isinstance(item, torch.Tensor):
        return False
    if item.dtype.is_floating_point or item.dtype.is_complex:
        return item.dim() == 0
    return item.numel() <= LARGEST_KNOWN
