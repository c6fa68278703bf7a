"""An exception as plain data: its whole chain, bounded and printable, made in little memory."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from objectives.trial.outcome import ExceptionRecord
from objectives.trial.protocol import clean

TEXT_CHARACTERS = 16_384
"""Kept of the start and of the end of each exception's text."""
TRACEBACK_CHARACTERS = 65_536
"""Kept of the end of the formatted traceback."""
LONGEST_CHAIN = 32


def exception_chain(error: BaseException) -> list[ExceptionRecord]:
    """The exception and all it came from, outermost first.

    Follows ``__cause__``, then ``__context__`` (also one hidden by ``from None``: what was being handled is evidence),
    then the members of an exception group; each exception once, at most :data:`LONGEST_CHAIN`.
    """
    return [_record(one) for _, one in zip(range(LONGEST_CHAIN), _walk(error), strict=False)]


def _walk(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        members = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        waiting[:0] = [one.__cause__, one.__context__, *members]


def _record(error: BaseException) -> ExceptionRecord:
    first, *others = [_name(cls) for cls in type(error).__mro__ if cls is not object]
    return ExceptionRecord(cls=first, bases=tuple(others), text=shortened(_text(error)))


def _name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - a text that cannot be made must not hide its exception
        return f"(its text cannot be read: {type(broken).__name__})"


def shortened(text: str) -> str:
    """The text with its middle taken out when it is very long, printable and storable everywhere."""
    if len(text) > 2 * TEXT_CHARACTERS:
        left_out = len(text) - 2 * TEXT_CHARACTERS
        text = f"{text[:TEXT_CHARACTERS]} [... {left_out} characters left out ...] {text[-TEXT_CHARACTERS:]}"
    return str(clean(text))


def failure_fields(error: BaseException) -> dict[str, Any]:
    """The fields of a ``failure`` event that the exception itself knows: ``chain`` and ``traceback``."""
    chain = [asdict(record) for record in exception_chain(error)]
    return {"chain": chain, "traceback": clean(_traceback(error))}


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))[-TRACEBACK_CHARACTERS:]
    except Exception as broken:  # noqa: BLE001 - the chain alone is evidence enough
        return f"(no traceback: {type(broken).__name__})"
