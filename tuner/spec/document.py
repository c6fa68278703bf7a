"""Where a spec comes from: a file, a text or a mapping, as plain values with the lines they stand on."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tuner.errors import SpecError, SpecProblem
from tuner.spec.yaml_text import DEEPEST, MOST_VALUES, KeyPath, dotted, parse_yaml

LARGEST_FILE_BYTES = 1_000_000
LARGEST_NUMBER = 2**63 - 1
NO_LINE = 0
"""The line of a key that does not stand in the file."""
ON_CUDA = "on_cuda"
"""Keys under it hold where a GPU is used."""
REFUSED: Any = None
"""Stands where a value was refused."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """A spec before anything in it is judged.

    Attributes:
        values: Plain dicts, lists, strings, numbers, booleans and None.
        lines: 1-based line by path; empty when there is no text.
        name: What messages call it: the file's name as given, or ``spec``.
        folder: Where relative paths in it start.
        problems: What was refused while reading.
    """

    values: dict[str, Any]
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    name: str = "spec"
    folder: str
    problems: tuple[SpecProblem, ...] = ()


def load(source: Path | str | Mapping[str, Any]) -> Document:
    """Reads a spec.

    Args:
        source: A file (a ``Path``, or a string of one line without ``": "``), YAML text, or a mapping.

    Raises:
        SpecError: It cannot be read at all.
    """
    if isinstance(source, Mapping):
        return _from_values(dict(source), {}, name="spec", folder=Path.cwd(), problems=[])
    if isinstance(source, str) and ("\n" in source or ": " in source or not source.strip()):
        return _from_text(source, name="spec", folder=Path.cwd())
    if not isinstance(source, (str, os.PathLike)):
        raise _unreadable("spec", f"a {type(source).__name__} is not a spec", "Give a file, YAML text or a mapping")
    name = os.fspath(source)
    return _from_text(_text_of(Path(name), name), name=name, folder=Path(name).absolute().parent)


def with_overrides(document: Document, overrides: Mapping[str, Any] | None) -> Document:
    """The document with some keys replaced.

    Args:
        document: What the file says.
        overrides: Values by dotted key, e.g. ``{"limits.time": "4m"}``. None as a value replaces nothing.
    """
    given = {key: value for key, value in (overrides or {}).items() if value is not None}
    if not given:
        return document
    values, lines = dict(document.values), dict(document.lines)
    for key, value in given.items():
        *above, last = key.split(".")
        place = values
        for part in above:
            inner = place.get(part)
            place[part] = dict(inner) if isinstance(inner, dict) else {}
            place = place[part]
        place[last] = value
        lines[(*above, last)] = NO_LINE
    return replace(document, values=values, lines=lines)


def for_devices(document: Document) -> tuple[Document, Document | None]:
    """The document without its ``on_cuda`` key, and with what stands there laid over it (None without that key).

    Mappings are laid over each other key by key; everything else is replaced.
    """
    if ON_CUDA not in document.values:
        return document, None
    values = {key: value for key, value in document.values.items() if key != ON_CUDA}
    plain = replace(document, values=values)
    extra = document.values[ON_CUDA]
    if not isinstance(extra, dict):
        line = document.lines.get((ON_CUDA,))
        problem = SpecProblem(
            where=ON_CUDA, reason="not a mapping", fix="Write the keys that differ below it", line=line
        )
        return replace(plain, problems=(*document.problems, problem)), None
    moved = {path[1:]: line for path, line in document.lines.items() if path[:1] == (ON_CUDA,) and len(path) > 1}
    return plain, replace(plain, values=_laid_over(values, extra), lines={**document.lines, **moved})


def _laid_over(values: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(values)
    for key, value in extra.items():
        below = made.get(key)
        made[key] = _laid_over(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return made


def _text_of(path: Path, name: str) -> str:
    try:
        if path.is_dir():
            raise _unreadable(name, "this is a folder", "Name the spec's file, such as study.yaml")
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise _unreadable(name, f"the file is larger than {LARGEST_FILE_BYTES} bytes", "Name a spec")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise _unreadable(name, "no such file", f"Looked for {path.absolute()}") from error
    except UnicodeDecodeError as error:
        raise _unreadable(name, "the file is not UTF-8 text", "Name a YAML file, saved as UTF-8") from error
    except (OSError, ValueError) as error:
        raise _unreadable(name, f"the file cannot be read ({error})", "Check its name and permissions") from error


def _from_text(text: str, *, name: str, folder: Path) -> Document:
    if len(text) > LARGEST_FILE_BYTES:
        raise _unreadable(name, f"the text is longer than {LARGEST_FILE_BYTES} characters", "Write a plain spec")
    found = parse_yaml(text)
    if not found.readable:
        raise SpecError(tuple(found.problems), name)
    return _from_values(found.value, found.lines, name=name, folder=folder, problems=found.problems)


def _from_values(
    values: Any, lines: Mapping[KeyPath, int], *, name: str, folder: Path, problems: list[SpecProblem]
) -> Document:
    if values is None or values == {}:
        raise _unreadable(name, "there is nothing in it", "A spec starts with 'study: NAME'; see examples/", *problems)
    if not isinstance(values, dict):
        reason = "a spec is a mapping of keys, and this is not one"
        raise _unreadable(name, reason, "A spec starts with 'study: NAME'; see examples/", *problems)
    plain = _Plain(lines)
    clean = plain.of(values, ())
    return Document(values=clean, lines=lines, name=name, folder=str(folder), problems=(*problems, *plain.problems))


def _unreadable(name: str, reason: str, fix: str, *others: SpecProblem) -> SpecError:
    return SpecError((*others, SpecProblem(where="", reason=reason, fix=fix)), name)


class _Plain:
    """Makes values plain and refuses what JSON and the store cannot keep."""

    def __init__(self, lines: Mapping[KeyPath, int]) -> None:
        self.problems: list[SpecProblem] = []
        self._lines = lines
        self._left = MOST_VALUES

    def of(self, value: Any, path: KeyPath) -> Any:
        self._left -= 1
        if self._left < 0 or len(path) > DEEPEST:
            return self._too_much(path)
        if isinstance(value, Mapping):
            return {self._key(key, path): self.of(inner, (*path, str(key))) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.of(inner, (*path, index)) for index, inner in enumerate(value)]
        return self._scalar(value, path)

    def _key(self, key: Any, path: KeyPath) -> str:
        return str(self._text(str(key), path))

    def _scalar(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._text(str(value), path)
        if type(value) is int:
            return self._whole(value, path)
        if type(value) is float:
            return self._real(value, path)
        return self._refuse(path, f"a {type(value).__name__} cannot stand in a spec", "Write text or a number")

    def _text(self, text: str, path: KeyPath) -> Any:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            return self._refuse(path, "the text holds half a character", "Write ordinary text")
        if "\0" in text:
            return self._refuse(path, "the text holds a NUL character", "Write ordinary text")
        return text

    def _whole(self, value: int, path: KeyPath) -> Any:
        if abs(value) <= LARGEST_NUMBER:
            return value
        return self._refuse(path, "the number is too large", f"Use {LARGEST_NUMBER} at most")

    def _real(self, value: float, path: KeyPath) -> Any:
        if math.isfinite(value):
            return value
        return self._refuse(path, f"{value} is not a finite number", "Write an ordinary number")

    def _too_much(self, path: KeyPath) -> Any:
        if self._left < -1:
            return REFUSED
        self._left = -1
        return self._refuse(path[:3], "the spec has too many values, or is nested too deep", "Write a plain spec")

    def _refuse(self, path: KeyPath, reason: str, fix: str) -> Any:
        line = self._lines.get(path)
        self.problems.append(SpecProblem(where=dotted(path), reason=reason, fix=fix, line=line))
        return REFUSED
