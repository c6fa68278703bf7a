"""Exceptions as records: what they are, whether they speak for a library, and what they carry inside their text."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterable, Iterator

from objectives.trial.faults.model import ExceptionRecord

Speaker = Callable[[ExceptionRecord], bool]

LONGEST_EDGE = 32_768
"""Characters read at each end of a text."""
MOST_RECORDS = 256
"""Records looked at in one ending."""

LIBRARIES = frozenset({
    "torch", "torch_npu", "torch_xla", "triton", "c10", "sycl", "cupy", "cupy_backends", "jaxlib", "numba", "pycuda",
    "pynvml", "deepspeed", "bitsandbytes", "transformer_engine", "flash_attn", "xformers",
    "intel_extension_for_pytorch",
})  # fmt: skip
"""Packages whose own exception classes speak for the device."""
KNOWN_CLASSES = frozenset({
    "OutOfMemoryError", "AcceleratorError", "CudaError", "DistBackendError", "DistError", "DistStoreError",
    "DistNetworkError", "BackendCompilerFailed", "InductorError", "OutOfResources", "XlaRuntimeError", "NVMLError",
})  # fmt: skip
"""Their names where the package is not known: such a class's words count, its name alone decides nothing."""

_CLASS_LINE = re.compile(r"^\s{0,4}([A-Za-z_][\w.]{0,200})(?:: ?(.*))?$", re.DOTALL)
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = ("The above exception was the direct cause", "During handling of the above exception", _TRACEBACK)
_RAISED = re.compile(r"raised:\n")
_RANK = re.compile(r"^\[rank ?\d{1,6}\]:? ?", re.IGNORECASE)


def edges(text: str) -> str:
    """The text, or both ends of a very long one."""
    return text if len(text) <= 2 * LONGEST_EDGE else f"{text[:LONGEST_EDGE]}\n{text[-LONGEST_EDGE:]}"


def names(record: ExceptionRecord) -> frozenset[str]:
    """Names of its class and all bases, ``builtins.`` left out; a builtin's bases are added where none are given."""
    given = {name.removeprefix("builtins.") for name in (record.cls, *record.bases)}
    known = getattr(builtins, record.cls.removeprefix("builtins."), None)
    if isinstance(known, type) and issubclass(known, BaseException):
        given |= {base.__name__ for base in known.__mro__ if base is not object}
    return frozenset(given)


def is_a(*classes: str) -> Speaker:
    """Exceptions of these classes (full names) or derived from them."""
    wanted = frozenset(classes)
    return lambda record: not wanted.isdisjoint(names(record))


def from_a_library(record: ExceptionRecord) -> bool:
    """Whether it is a ``RuntimeError`` (what compiled code raises) or a class of a library that talks to the device."""
    if record.cls.rpartition(".")[2] in KNOWN_CLASSES:
        return True
    return any(name == "RuntimeError" or name.partition(".")[0] in LIBRARIES for name in names(record))


def either(*speakers: Speaker) -> Speaker:
    """Whoever one of these is."""
    return lambda record: any(speaker(record) for speaker in speakers)


def unfolded(chain: Iterable[ExceptionRecord]) -> tuple[ExceptionRecord, ...]:
    """The chain with what its texts carry: compilers, loaders and launchers quote other exceptions."""
    records: list[ExceptionRecord] = []
    for record in chain:
        records.append(record)
        records.extend(_inside(edges(record.text)))
        if len(records) > MOST_RECORDS:
            break
    return tuple(records[:MOST_RECORDS])


def _inside(text: str) -> Iterator[ExceptionRecord]:
    if _TRACEBACK in text:
        yield from tracebacks(text)
    if raised := _RAISED.search(text):
        found = _named(text[raised.end() :])
        if found is not None:
            yield found


def tracebacks(text: str) -> Iterator[ExceptionRecord]:
    """The exception at the end of each printed traceback, first to last, with its text up to the next one."""
    for part in text.split(_TRACEBACK)[1:]:
        lines = [_RANK.sub("", line) for line in part.splitlines()[1:]]
        end = next((at for at, line in enumerate(lines) if line and not line[0].isspace()), None)
        if end is not None:
            found = _named("\n".join(_own_lines(lines[end:])))
            if found is not None:
                yield found


def _own_lines(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if line.startswith(_CHAINED):
            return
        yield line


def _named(text: str) -> ExceptionRecord | None:
    match = _CLASS_LINE.match(text)
    if match is None:
        return None
    return ExceptionRecord(cls=match.group(1), text=(match.group(2) or "").strip())
