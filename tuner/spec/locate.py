"""Problems found after the spec was read (in preparation) brought back to the lines they stand on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tuner.errors import SpecError, SpecProblem
from tuner.spec.document import ON_CUDA, Document, load
from tuner.spec.shape import line_of
from tuner.spec.yaml_text import KeyPath

_PLACE = re.compile(r"(objective(?:\.[A-Za-z_]\w*)*): +(.+)", re.DOTALL)


def objective_problem(text: str) -> SpecProblem:
    """What an objective said of its settings; a text that begins with a key's path is a problem of that key."""
    found = _PLACE.fullmatch(text.strip())
    where, reason = found.groups() if found is not None else ("objective", text.strip())
    return SpecProblem(where=where, reason=reason, fix="")


@contextmanager
def with_lines(source: Path) -> Iterator[None]:
    """Gives every :class:`SpecError` raised inside the file and the lines of its keys.

    Args:
        source: The spec's file, which has been read before.
    """
    try:
        yield
    except SpecError as error:
        if any(problem.line is not None for problem in error.problems):
            raise
        document = load(source)
        raise SpecError(tuple(_placed(each, document) for each in error.problems), document.name) from error


def _placed(problem: SpecProblem, document: Document) -> SpecProblem:
    path: KeyPath = tuple(problem.where.split(".")) if problem.where else ()
    return replace(problem, line=_line(path, document.lines))


def _line(path: KeyPath, lines: Mapping[KeyPath, int]) -> int | None:
    """Of the key where it stands, above or under ``on_cuda``: whichever is nearer to the whole path."""
    places = ((path[:length], (ON_CUDA, *path[:length])) for length in range(len(path), 0, -1))
    known = next((place for pair in places for place in pair if place in lines), path)
    return line_of(known, lines)
