"""One training step seen operator by operator, without a clock: what waits for the device, and what runs the wrong way.

A dispatch mode sees every operator with its tensors, on a CPU and on a GPU alike, so a synchronisation is found by what
it is and where it is written, not by how long a quiet machine waits for it.
"""

from __future__ import annotations

import sys
import sysconfig
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from objectives.estimate.storages import tensors_in
from objectives.measure.operators import Finding

WAITING = {
    "aten._local_scalar_dense": "a tensor's value is read (.item(), float(), int(), if)",
    "aten.nonzero": "nonzero() has a result of unknown size",
    "aten.masked_select": "masked_select() has a result of unknown size",
    "aten._unique2": "unique() has a result of unknown size",
    "aten.unique_dim": "unique() has a result of unknown size",
    "aten.equal": "torch.equal() answers with a value",
}  # fmt: skip
"""Operators that make the host wait for the device, and what a person wrote."""
INDEXING = frozenset({"aten.index", "aten.index_put", "aten.index_put_"})
PRODUCTS = frozenset({
    "aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.convolution", "aten.convolution_backward",
})  # fmt: skip
HALF = {"bf16-mixed": torch.bfloat16, "bf16-true": torch.bfloat16, "fp16-mixed": torch.float16}
OWN_CODE_PER_STEP, LIBRARY_PER_STEP = 1, 3
"""So many waits a micro-step are accused: of one's own code each, of a library (it asks for a mask once) more."""
WIDE_SHARE = 0.1
"""Share of the products' work in a wider type than the precision's, from which on it is accused."""
LEAST_ELEMENTS = 1024
"""Smaller tensors on the host cost nothing."""
_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parents[1])
_LIBRARIES = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sysconfig.get_path("stdlib")})


class Watcher(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what it sees in some micro-steps.

    Args:
        device_type: Where the model is.
        module: Says which module runs now; empty outside any.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here

    def __init__(self, device_type: str, module: Callable[[], str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device_type, self._module = device_type, module
        self._waits: Counter[tuple[str, str, str]] = Counter()
        self._hosts: Counter[tuple[str, str]] = Counter()
        self._work: dict[tuple[str, torch.dtype], float] = defaultdict(float)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operator and notes it."""
        made = func(*args, **(kwargs or {}))
        name = str(func).rpartition(".")[0]
        why = WAITING.get(name) or self._mask(name, args) or self._transfer(name, args, made)
        if why is not None:
            self._waits[self._module(), why, _line()] += 1
        if name in PRODUCTS and torch._C._current_graph_task_id() == -1:  # the backward pass has the forward's types
            self._weigh(args, made)
        if self._device_type != "cpu":
            self._look_at_host(name, args, made)
        return made

    def _mask(self, name: str, args: Any) -> str | None:
        indices = args[1] if name in INDEXING and len(args) > 1 else ()
        masks = [one for one in indices if isinstance(one, torch.Tensor) and one.dtype == torch.bool]
        return "indexing by a mask has a result of unknown size" if masks and name == "aten.index" else None

    def _transfer(self, name: str, args: Any, made: Any) -> str | None:
        if name not in ("aten._to_copy", "aten.copy_") or self._device_type == "cpu" or not args:
            return None
        source = args[1] if name == "aten.copy_" else args[0]
        if not isinstance(source, torch.Tensor) or not isinstance(made, torch.Tensor):
            return None
        if source.device.type == made.device.type:
            return None
        if made.device.type == "cpu":
            return "a tensor is copied to the host (.cpu(), .tolist(), .numpy())"
        if source.numel() > 1 and not source.is_pinned():
            return "a tensor is copied to the device from memory that is not pinned"
        return None

    def _weigh(self, args: Any, made: Any) -> None:
        result = next(tensors_in(made), None)
        inputs = [one for one in args if isinstance(one, torch.Tensor)]
        if result is None or not inputs:
            return
        inner = inputs[-1].shape[0] if inputs[-1].dim() == 2 else max(inputs[-1].shape[1:], default=1)
        self._work[self._module(), inputs[-1].dtype] += float(result.numel() * inner)

    def _look_at_host(self, name: str, args: Any, made: Any) -> None:
        """Work on the host beside a model on the device."""
        result = next(tensors_in(made), None)
        inputs = [one for one in args if isinstance(one, torch.Tensor)]
        if result is None or result.device.type != "cpu" or result.numel() < LEAST_ELEMENTS or not inputs:
            return
        if all(one.device.type == "cpu" for one in inputs) and name not in ("aten.detach", "aten.view", "aten.alias"):
            self._hosts[self._module(), name] += 1

    def waits(self, micro_steps: int) -> list[dict[str, Any]]:
        """Every wait seen: why, where it is written, in which module, how often a micro-step; most often first."""
        return [
            {"why": why, "line": line, "module": module, "per_micro_step": count / micro_steps}
            for (module, why, line), count in self._waits.most_common()
        ]

    def findings(self, micro_steps: int, precision: str) -> list[Finding]:
        """What is accused."""
        return [*self._hidden(micro_steps), *self._wrong_device(micro_steps), *self._wide(precision)]

    def _hidden(self, micro_steps: int) -> list[Finding]:
        found = []
        for each in self.waits(micro_steps):
            times, line = each["per_micro_step"], each["line"]
            if times < (LIBRARY_PER_STEP if _of_library(line) else OWN_CODE_PER_STEP):
                continue
            place = f" in {each['module']}" if each["module"] else ""
            found.append(
                Finding(
                    kind="hidden_synchronisation",
                    where=line,
                    text=f"{line}{place}: {each['why']}, {times:.3g} times per micro-step: the host waits for the "
                    "device",
                    advice="keep the value on the device, or read it once every so many steps",
                )
            )
        return found

    def _wrong_device(self, micro_steps: int) -> list[Finding]:
        by_module: Counter[str] = Counter()
        for (module, _name), count in self._hosts.items():
            by_module[module] += count
        return [
            Finding(
                kind="wrong_device",
                where=module or "the loss",
                text=f"{module or 'the loss'} computes on the host ({count / micro_steps:.3g} operators per "
                f"micro-step) while the model is on {self._device_type}",
                advice="move its parameters, buffers and inputs to the device",
            )
            for module, count in by_module.most_common(3)
        ]

    def _wide(self, precision: str) -> list[Finding]:
        total = sum(self._work.values())
        wanted = HALF.get(precision, torch.float32)
        kinds = {dtype for _, dtype in self._work if dtype.is_floating_point and dtype.itemsize > wanted.itemsize}
        found = []
        for dtype in kinds:
            work = {module: size for (module, kind), size in self._work.items() if kind == dtype}
            if sum(work.values()) < WIDE_SHARE * total:
                continue
            where = common_module(work)
            found.append(
                Finding(
                    kind="slow_path",
                    where=where,
                    text=f"{where} multiplies in {str(dtype).removeprefix('torch.')} though the precision is "
                    f"{precision}: {100 * sum(work.values()) / total:.0f} % of the forward products' work",
                    advice="leave out the cast (.float(), .double(), autocast(enabled=False)) around its products",
                )
            )
        return found


def common_module(work: Mapping[str, float]) -> str:
    """The innermost module that holds all of them; the largest where none does."""
    names = [name.split(".") for name in work if name]
    common = []
    for parts in zip(*names, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return ".".join(common) or max(work, key=lambda name: work[name]) or "the loss"


def _line() -> str:
    """``file:line (function)`` of the innermost caller outside PyTorch and our own loop; ``?`` for none."""
    frames = [
        frame for frame in traceback.extract_stack(sys._getframe(2))
        if not frame.filename.startswith((_TORCH, "<")) and not _is_machinery(frame.filename)
    ]  # fmt: skip
    if not frames:
        return "?"
    last = frames[-1]
    return f"{_short(last.filename)}:{last.lineno} ({last.name})"


def _is_machinery(filename: str) -> bool:
    """Our own loop; the built-in objectives count as a library's code, not as the loop."""
    return filename.startswith((f"{_OURS}/trial/", f"{_OURS}/measure/", f"{_OURS}/estimate/"))


def _short(filename: str) -> str:
    for library in _LIBRARIES:
        if filename.startswith(library):
            return "<library>" + filename.removeprefix(library)
    return filename.removeprefix(str(Path.cwd()) + "/")


def _of_library(line: str) -> bool:
    return line.startswith(("<library>", _OURS))
