"""What a YAML parser complains about, said in the words of somebody who writes a spec."""

from __future__ import annotations

import re

from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.reader import ReaderError

from tuner.errors import SpecProblem

_KNOWN: tuple[tuple[str, str, str], ...] = (
    (r"character '\\t'", "a tab stands where YAML wants spaces", "Indent with spaces"),
    (r"quoted scalar", "a quote is opened here and never closed", "Close the quote"),
    (r"flow sequence", "the list that starts here is not closed, or lacks a comma", "Write [a, b, c]"),
    (r"flow mapping", "the mapping that starts here is not closed, or lacks a comma", "Write {key: value, key: value}"),
    (
        r"mapping values are not allowed",
        "a key or a ': ' stands where none can",
        "Align keys that belong together; put text that contains ': ' in quotes",
    ),
    (r"cannot start any token", "a word starts with a character that YAML reserves", "Put the text in quotes"),
    (r"could not find expected ':'", "a key has no ':'", "Write 'key: value'"),
    (r"expected <block end>", "the indentation does not match the lines above", "Align keys that belong together"),
)
"""(pattern in the parser's text, reason, fix), first match wins."""


def syntax_problem(error: Exception, text: str) -> SpecProblem:
    """The parser's error as a problem with its line.

    Args:
        error: What the parser raised.
        text: The whole text, to count lines in where the error knows only a position.
    """
    if isinstance(error, ReaderError):
        return _bad_character(error, text)
    if not isinstance(error, MarkedYAMLError):
        return SpecProblem(where="", reason=f"this is not YAML ({_short(str(error))})", fix="Check the text", line=None)
    said = f"{error.context or ''} {error.problem or ''}"
    known = next((row for row in _KNOWN if re.search(row[0], said)), None)
    reason, fix = known[1:] if known else (f"this is not YAML: {_short(said.strip())}", "Check indentation and quotes")
    return SpecProblem(where="", reason=reason, fix=fix, line=_line(error))


def _line(error: MarkedYAMLError) -> int | None:
    """The line where the unfinished thing starts, else where the parser stopped."""
    unfinished = re.search(r"quoted scalar|flow sequence|flow mapping", error.context or "")
    mark = error.context_mark if unfinished and error.context_mark is not None else error.problem_mark
    return None if mark is None else int(mark.line) + 1


def _bad_character(error: ReaderError, text: str) -> SpecProblem:
    position = int(error.position or 0)
    return SpecProblem(
        where="",
        reason=f"the file holds a character that is not text (at position {position})",
        fix="Save the spec as plain UTF-8 text",
        line=text.count("\n", 0, position) + 1,
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 120 else line[:117] + "..."
