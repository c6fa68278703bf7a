"""A function on its way to a child: pickled by value into a private folder, gone afterwards; never stored."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from objectives.contract import ObjectiveReference
from objectives.function import ENDING, KIND
from tuner.errors import TightfitError

LARGE_BYTES = 512 * 2**20
"""A function that carries more with it holds data or a model that belongs inside it."""
MAIN = "__main__"


class CannotTravel(TightfitError):
    """The function cannot be taken to a fresh process; the message names what keeps it."""

    exit_status = 2


def pickled(function: Callable[[], Any]) -> bytes:
    """The function by value: what it closes over and what it uses of ``__main__`` travels with it.

    Raises:
        CannotTravel: Something it uses cannot be pickled, or it carries too much.
    """
    import cloudpickle

    try:
        payload: bytes = cloudpickle.dumps(function)
    except Exception as error:  # every library has its own
        raise CannotTravel(_why(function, error)) from error
    if len(payload) > LARGE_BYTES:
        raise CannotTravel(
            f"the function carries {len(payload) / 2**30:.1f} GiB with it ({_largest(function)}): make model and data "
            "inside it"
        )
    return payload


@contextlib.contextmanager
def travelling(function: Callable[[], Any], fingerprint: str, folder: Path) -> Iterator[Path]:
    """The folder with the function's file in it: mode 0700 and 0600, removed with the block.

    Args:
        function: What travels.
        fingerprint: Of it; the file's name.
        folder: Where private folders are made.

    Raises:
        CannotTravel: It cannot be pickled.
    """
    payload = pickled(function)
    head = json.dumps({"folder": str(Path.cwd()), "path": [entry or str(Path.cwd()) for entry in sys.path]})
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    private = Path(tempfile.mkdtemp(prefix="function-", dir=folder))
    try:
        handle = os.open(private / f"{fingerprint}{ENDING}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(head.encode() + b"\n" + payload)
        yield private
    finally:
        shutil.rmtree(private, ignore_errors=True)


def require_here(objective: ObjectiveReference) -> None:
    """Refuses further runs of a function's study outside :func:`travelling`.

    Raises:
        TightfitError: It is one, and its function is not here.
    """
    mark = str(objective.settings.get("fingerprint"))
    if objective.kind == KIND and not (Path(objective.folder) / f"{mark}{ENDING}").is_file():
        raise TightfitError(
            "this study is of a function handed to `tuner.tune`, which never stores it: call `tuner.tune` again with "
            "the same function instead"
        )


def _why(function: Callable[[], Any], error: Exception) -> str:
    name = next((name for name, value in used(function).items() if not _goes(value)), None)
    said = f"{type(error).__name__}: {error}"
    if name is None:
        return f"{name_of(function)} cannot be taken to another process: {said}"
    value = used(function)[name]
    return (
        f"{name_of(function)} uses {name!r}, a {type(value).__module__}.{type(value).__qualname__}, which cannot be "
        f"taken to another process ({said}): make it inside the function"
    )


def _goes(value: Any) -> bool:
    import cloudpickle

    try:
        cloudpickle.dumps(value)
    except Exception:  # noqa: BLE001 - whatever it is, it does not go
        return False
    return True


def _largest(function: Callable[[], Any]) -> str:
    import cloudpickle

    sizes = {name: len(cloudpickle.dumps(value)) for name, value in used(function).items() if _goes(value)}
    name = max(sizes, key=lambda each: sizes[each], default=None)
    return "in its own code" if name is None else f"most of it in {name!r}"


def name_of(function: Callable[[], Any]) -> str:
    """What people call it."""
    return getattr(function, "__name__", type(function).__name__)


def used(function: Callable[[], Any]) -> Mapping[str, Any]:
    """What a function uses beside its own code, by name: closed over, global, its defaults, what it is bound to."""
    if isinstance(function, MethodType):
        return {"self": function.__self__, **used(function.__func__)}
    if not isinstance(function, FunctionType):
        return dict(vars(function)) if hasattr(function, "__dict__") else {}
    found = inspect.getclosurevars(function)
    defaults = {f"default {index}": value for index, value in enumerate(function.__defaults__ or ())}
    return {**found.nonlocals, **found.globals, **defaults}


def fingerprint_of(function: Callable[[], Any]) -> str:
    """16 hex digits that stay the same for the same function in another session, and change with its code or values.

    Line numbers and file names do not count; of an imported module, its name does, not its text.
    """
    told = hashlib.sha256()
    for part in _parts(function, set()):
        told.update(part.encode("utf-8", "backslashreplace") + b"\0")
    return told.hexdigest()[:16]


def _parts(value: Any, seen: set[int]) -> Iterator[str]:
    if id(value) in seen:
        return
    if isinstance(value, FunctionType) and _is_local(value):
        seen.add(id(value))
        yield from _code(value.__code__)
        for name, inner in sorted(used(value).items()):
            yield name
            yield from _parts(inner, seen)
    elif isinstance(value, type) and _is_local(value):
        seen.add(id(value))
        for name, inner in sorted(vars(value).items()):
            if not name.startswith("__") or isinstance(inner, FunctionType):
                yield name
                yield from _parts(inner, seen)
    elif isinstance(value, MethodType):
        yield from _parts(value.__func__, seen)
        yield from _parts(value.__self__, seen)
    else:
        yield _plain(value, seen)


def _is_local(value: Any) -> bool:
    """Whether it is not found by importing its module elsewhere: of a script, a notebook, or made inside a function."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    if module is None or module.__name__ == MAIN or not hasattr(module, "__file__"):
        return True
    return "<" in value.__qualname__  # a lambda, or something local to a function


def _code(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield " ".join((*code.co_names, *code.co_varnames, *code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield repr(sorted(constant, key=repr)) if isinstance(constant, frozenset) else repr(constant)


def _plain(value: Any, seen: set[int]) -> str:
    """One text for a value: its name where it is found by importing, its text where that says all, else its pickle."""
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        return f"{value.__module__}.{value.__qualname__}"
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(part for each in value for part in _parts(each, seen))}]"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(part for each in value for part in _parts(each, seen)))}}}"
    if isinstance(value, dict):
        pairs = (f"{'|'.join(_parts(key, seen))}: {'|'.join(_parts(each, seen))}" for key, each in value.items())
        return f"{{{', '.join(sorted(pairs))}}}"
    return _pickle_hash(value)


def _pickle_hash(value: Any) -> str:
    import cloudpickle

    return hashlib.sha256(cloudpickle.dumps(value)).hexdigest() if _goes(value) else type(value).__qualname__
