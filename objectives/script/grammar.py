"""The grammar of a script's template: text with ``{placeholders}``, and tables of words. Nothing is evaluated. Pure.

* ``{name}`` stands for a knob's value, or for one of :data:`DERIVED`; ``{{`` and ``}}`` are the braces themselves.
* A *table of words* (``{bf16-mixed: [--bf16, "True"], fp32: []}``) says how a knob's values are written. An entry is a
  scalar (one word; the empty text is no word) or a list of scalars (so many words).
* An argument that is nothing but one placeholder becomes as many arguments as its words; inside longer text the
  words must be exactly one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Scalar = str | int | float | bool | None
Words = tuple[Scalar, ...]

PATCHED_FILE = "patched_file"
RUN_FOLDER = "run_folder"
DERIVED = ("accumulation_steps", "global_batch_size", "seed", PATCHED_FILE, RUN_FOLDER)
"""Placeholders that are no knobs: what follows from the batch, the study's seed, where the patched copy lies, and a
folder that is gone when the run is (for checkpoints nobody wants)."""

_PARTS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME = re.compile(r"[a-z][a-z0-9_]*")


class GrammarError(ValueError):
    """A template cannot be read or filled. The message says what and the way out."""


@dataclass(frozen=True)
class Placeholder:
    """``{name}`` in a text."""

    name: str


Part = str | Placeholder


def parse(text: str) -> tuple[Part, ...]:
    """A text as literal parts and placeholders, in order; neighbouring literals are joined.

    Raises:
        GrammarError: A brace stands alone, or what it holds is no name.
    """
    parts: list[Part] = []
    at = 0
    for found in _PARTS.finditer(text):
        _literal(parts, text[at : found.start()])
        at = found.end()
        if found.group() in ("{{", "}}"):
            _literal(parts, found.group()[0])
        elif found.group(1) is not None and _NAME.fullmatch(found.group(1)):
            parts.append(Placeholder(found.group(1)))
        else:
            raise GrammarError(
                f"{found.group()!r} in {text!r} is no placeholder: write {{knob}}, or '{{{{' for a brace"
            )
    _literal(parts, text[at:])
    return tuple(parts)


def _literal(parts: list[Part], text: str) -> None:
    if text and parts and isinstance(parts[-1], str):
        parts[-1] += text
    elif text:
        parts.append(text)


def names(text: str) -> tuple[str, ...]:
    """The placeholders of a text, in order. Raises :class:`GrammarError` as :func:`parse`."""
    return tuple(part.name for part in parse(text) if isinstance(part, Placeholder))


def words_of(entry: Any) -> Words:
    """An entry of a table of words: a list as it is; the empty text is no word; any other scalar one word.

    Raises:
        GrammarError: Something else.
    """
    if isinstance(entry, (list, tuple)):
        if all(isinstance(word, (str, int, float, bool)) or word is None for word in entry):
            return tuple(entry)
        raise GrammarError("a list of words holds text, numbers, true, false or null")
    if isinstance(entry, Mapping):
        raise GrammarError("an entry of a table is a word or a list of words, not a mapping")
    return () if entry == "" else (entry,)


def key_of(value: Scalar) -> str:
    """How a knob's value is written as a key of a table: ``true`` and ``false`` as YAML writes them."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def word(scalar: Scalar) -> str:
    """A scalar as text on a command line: booleans and null as YAML writes them."""
    return "null" if scalar is None else key_of(scalar)


Values = Mapping[str, Words]
"""The words of every placeholder of one configuration."""


def arguments(text: str, values: Values) -> Iterator[str]:
    """The command-line arguments one element of the template becomes."""
    parts = parse(text)
    if len(parts) == 1 and isinstance(parts[0], Placeholder):
        yield from (word(each) for each in values[parts[0].name])
        return
    yield one_text(text, values)


def one_text(text: str, values: Values) -> str:
    """A text with its placeholders filled.

    Raises:
        GrammarError: A placeholder's words are not exactly one.
    """
    return "".join(part if isinstance(part, str) else word(_single(part, text, values)) for part in parse(text))


def typed(text: str, values: Values) -> Any:
    """A value for a configuration file: a lone placeholder keeps its type (several words are a list)."""
    parts = parse(text)
    if len(parts) == 1 and isinstance(parts[0], Placeholder):
        return value_of(values[parts[0].name])
    return one_text(text, values)


def value_of(words: Words) -> Any:
    """Words as a value of a configuration file: one is itself, none the empty text, several a list."""
    if len(words) == 1:
        return words[0]
    return list(words) if words else ""


def _single(part: Placeholder, text: str, values: Values) -> Scalar:
    found = values[part.name]
    if len(found) != 1:
        raise GrammarError(
            f"{{{part.name}}} stands inside {text!r} and has {len(found)} words there: one is needed; give it an "
            "argument of its own, or one word for each value"
        )
    return found[0]
