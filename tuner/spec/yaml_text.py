"""YAML 1.2 text as plain values with the line of every key. Nothing is evaluated, expanded or constructed.

Built on the event stream of ruamel.yaml, not on its constructors: so ``off`` stays a word whatever the file's version
directive says, tags and anchors are refused where they stand, and deep nesting costs a list, not the stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent, CollectionStartEvent, MappingStartEvent, NodeEvent, ScalarEvent

from tuner.errors import SpecProblem
from tuner.spec.yaml_syntax import syntax_problem

KeyPath = tuple[str | int, ...]
DEEPEST = 40
MOST_VALUES = 20_000

_INTEGER = re.compile(r"[-+]?[0-9][0-9_]*|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass(kw_only=True)
class YamlText:
    """What a text says.

    Attributes:
        value: Plain dicts, lists, strings, numbers, booleans and None.
        lines: 1-based line of each key (or list item) by its path.
        problems: What was refused on the way. The value is still usable for finding further problems.
        readable: False where the text broke off: what follows the problem is unknown.
    """

    value: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[SpecProblem] = field(default_factory=list)
    readable: bool = True


def parse_yaml(text: str) -> YamlText:
    """Reads one YAML document. Never raises: everything wrong is a problem with its line."""
    found = YamlText()
    try:
        _Builder(found).build(iter(YAML(typ="rt", pure=True).parse(text)))
    except _TooMuchError as error:
        found.problems.append(SpecProblem(where="", reason=str(error), fix="Write a plain spec", line=error.line))
        found.readable = False
    except (YAMLError, ValueError, LookupError, AttributeError, TypeError, AssertionError, RecursionError) as error:
        found.problems.append(syntax_problem(error, text))
        found.readable = False
    return found


def plain_scalar(text: str) -> Any:
    """An unquoted word by YAML 1.2's core schema: null, true, false, numbers; everything else is text."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > 300:
        return text
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", ""), {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def dotted(path: KeyPath) -> str:
    """``("search", "precision", 0)`` as ``search.precision[0]``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


class _TooMuchError(Exception):
    def __init__(self, reason: str, line: int) -> None:
        self.line = line
        super().__init__(reason)


@dataclass(kw_only=True)
class _Open:
    """A collection that is being filled.

    Attributes:
        key: A mapping's pending key; None when the next event is a key.
        kept: Whether the pending key's value enters the mapping (not for a key that was refused).
    """

    path: KeyPath
    made: dict[str, Any] | list[Any]
    key: str | None = None
    kept: bool = True

    @property
    def next_path(self) -> KeyPath:
        return (*self.path, len(self.made) if isinstance(self.made, list) else self.key or "?")

    @property
    def awaits_key(self) -> bool:
        return isinstance(self.made, dict) and self.key is None

    def add(self, value: Any) -> None:
        if isinstance(self.made, list):
            self.made.append(value)
            return
        if self.kept and self.key is not None:
            self.made[self.key] = value
        self.key = None


class _Builder:
    """Turns the events of one text into values."""

    def __init__(self, found: YamlText) -> None:
        self._found = found
        self._stack: list[_Open] = []
        self._values = 0
        self._documents = 0

    def build(self, events: Iterator[Any]) -> None:
        for event in events:
            name = type(event).__name__
            if name == "DocumentStartEvent":
                self._document(event)
            elif self._documents == 1 and name in ("SequenceEndEvent", "MappingEndEvent"):
                self._stack.pop()
            elif self._documents == 1 and isinstance(event, NodeEvent):
                self._node(event)

    def _document(self, event: Any) -> None:
        self._documents += 1
        if self._documents == 2:
            self._refuse(event, (), "a second document starts here", "Keep one study in one file; remove the '---'")

    def _node(self, event: Any) -> None:
        line = event.start_mark.line + 1
        self._values += 1
        if self._values > MOST_VALUES:
            raise _TooMuchError(f"the spec has more than {MOST_VALUES} values", line)
        if len(self._stack) >= DEEPEST:
            raise _TooMuchError(f"the spec is nested more than {DEEPEST} levels deep", line)
        place = self._stack[-1] if self._stack else None
        if place is not None and place.awaits_key:
            self._take_key(place, event, line)
        else:
            self._take_value(place, event, line)

    def _take_key(self, place: _Open, event: Any, line: int) -> None:
        place.key = str(getattr(event, "value", "") or "?")
        place.kept = self._key_is_good(place, event)
        if place.kept:
            self._found.lines[place.next_path] = line
        elif isinstance(event, CollectionStartEvent):
            self._stack.append(_Open(path=place.next_path, made={} if isinstance(event, MappingStartEvent) else []))

    def _key_is_good(self, place: _Open, event: Any) -> bool:
        path = place.next_path
        self._refuse_marks(event, path)
        if not isinstance(event, ScalarEvent) or not event.value:
            self._refuse(event, path, "a key must be one word", "Write 'key: value'")
        elif event.value == "<<":
            self._refuse(event, path, "merge keys are not read", "Write the keys out here")
        elif path in self._found.lines:
            first = self._found.lines[path]
            self._refuse(event, path, f"the key is written twice, first on line {first}", "Keep one of them")
        else:
            return True
        return False

    def _take_value(self, place: _Open | None, event: Any, line: int) -> None:
        path = place.next_path if place is not None else ()
        if place is None or isinstance(place.made, list):
            self._found.lines[path] = line
        self._refuse_marks(event, path)
        value = self._value(event, path)
        if place is None:
            self._found.value = value
        else:
            place.add(value)
        if isinstance(value, (dict, list)):
            self._stack.append(_Open(path=path, made=value))

    def _value(self, event: Any, path: KeyPath) -> Any:
        if isinstance(event, CollectionStartEvent):
            return {} if isinstance(event, MappingStartEvent) else []
        if isinstance(event, AliasEvent):
            self._refuse(event, path, f"'*{event.anchor}' points to another place", "Write the value out here")
            return None
        return plain_scalar(event.value) if event.style is None else str(event.value)

    def _refuse_marks(self, event: Any, path: KeyPath) -> None:
        """Refuses tags (``!!python/object``) and anchors (``&name``)."""
        if isinstance(event, AliasEvent):
            return
        if event.ctag is not None:
            self._refuse(event, path, f"the tag {str(event.ctag)!r} is not read", "Write the plain value")
        if event.anchor is not None:
            self._refuse(event, path, f"the anchor '&{event.anchor}' is not read", "Remove it and write values out")

    def _refuse(self, event: Any, path: KeyPath, reason: str, fix: str) -> None:
        line = event.start_mark.line + 1
        self._found.problems.append(SpecProblem(where=dotted(path), reason=reason, fix=fix, line=line))
