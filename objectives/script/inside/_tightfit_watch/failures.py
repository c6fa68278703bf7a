"""Reports the exception a process ends with, with its whole chain, before anything is printed or cleaned up."""

from __future__ import annotations

import itertools
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

LONGEST_CHAIN = 32
TEXT_CHARACTERS = 16384
TRACEBACK_CHARACTERS = 65536

FACTS: list[Callable[[], dict[str, Any]]] = []
"""What is known beside the exception (memory at the end): filled by whoever knows."""


def install(line: Any) -> None:
    """Puts a hook before the one there is."""
    before = sys.excepthook

    def report(kind: Any, error: BaseException, trace: Any) -> None:
        try:
            if not isinstance(error, SystemExit):
                line.send(failure=describe(error))
        finally:
            before(kind, error, trace)

    sys.excepthook = report


def describe(error: BaseException) -> dict[str, Any]:
    """The failure as plain data: ``chain`` (outermost first), ``traceback``, and what is known beside it."""
    found: dict[str, Any] = {
        "chain": [_record(one) for one in itertools.islice(_walk(error), LONGEST_CHAIN)],
        "traceback": "".join(traceback.format_exception(type(error), error, error.__traceback__))[
            -TRACEBACK_CHARACTERS:
        ],
    }
    for facts in FACTS:
        try:
            found.update(facts())
        except Exception:  # noqa: BLE001, S112 - the failure itself must be told
            continue
    return found


def _walk(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting[:0] = [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


def _record(error: BaseException) -> dict[str, Any]:
    names = [_name(cls) for cls in type(error).__mro__ if cls is not object]
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a text that cannot be made must not hide its exception
        text = "(its text cannot be read)"
    return {"cls": names[0], "bases": names[1:], "text": text[:TEXT_CHARACTERS]}


def _name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
