"""One value of a YAML text read or replaced; the rest stays as it was written, its comments too. Pure."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from tuner.spec.document import LARGEST_FILE_BYTES
from tuner.spec.yaml_text import KeyPath, parse_yaml

WIDTH = 110
"""Columns at which long lines are broken where a whole text is written; an edited one keeps its lines."""
UNBROKEN = 1_000_000


def values_of(text: str) -> dict[str, Any] | None:
    """The text as plain values; None where it cannot be read, so that nothing in it can be replaced either.

    Tags, anchors and doubled keys count as that: the editor says what is wrong with them.
    """
    if len(text) > LARGEST_FILE_BYTES:
        return None
    found = parse_yaml(text)
    if not found.readable or found.problems:
        return None
    if found.value is None:
        return {}
    return found.value if isinstance(found.value, dict) else None


def value_at(values: Mapping[str, Any], path: KeyPath) -> Any:
    """The value at a path; None where there is none."""
    found: Any = values
    for part in path:
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found


def edited(text: str, path: KeyPath, value: Any) -> str:
    """The text with one value replaced; unchanged where it cannot be read.

    Args:
        text: YAML that :func:`values_of` reads.
        path: Keys of mappings; those that are missing are made.
        value: Plain data; None removes the key, and mappings that become empty with it.
    """
    values = values_of(text)
    if values is None or _is_same(value_at(values, path), value):
        return text
    writer = _writer(UNBROKEN)
    try:
        tree = writer.load(text)
    except YAMLError:
        return text
    tree = tree if isinstance(tree, CommentedMap) else CommentedMap()
    if value is None:
        _remove(tree, path)
    else:
        _set(tree, path, value)
    return _written(writer, tree)


def written(values: Mapping[str, Any]) -> str:
    """Plain values as YAML: top-level keys in lines, what is below in a line where it is short."""
    tree = CommentedMap()
    for name, value in values.items():
        tree[name] = _node(value, flow=not isinstance(value, Mapping) or _is_short(value))
    return _written(_writer(), tree)


def flow(value: Any) -> str:
    """A value in one line, as it may stand after a key."""
    if isinstance(value, str):
        return value
    stream = io.StringIO()
    _writer(UNBROKEN).dump(_node(value, flow=True), stream)
    return stream.getvalue().removesuffix("...\n").strip()


def block(value: Mapping[str, Any]) -> str:
    """A mapping in lines."""
    stream = io.StringIO()
    _writer().dump(_node(value, flow=False), stream)
    return stream.getvalue()


def _writer(width: int = WIDTH) -> YAML:
    made = YAML(typ="rt", pure=True)
    made.preserve_quotes = True
    made.width = width
    return made


def _written(writer: YAML, tree: CommentedMap) -> str:
    if not tree:
        return ""
    stream = io.StringIO()
    writer.dump(tree, stream)
    return stream.getvalue()


def _set(tree: CommentedMap, path: KeyPath, value: Any) -> None:
    place = tree
    for part in path[:-1]:
        if not isinstance(place.get(part), CommentedMap):
            place[part] = CommentedMap()
        place = place[part]
    inside_flow = len(path) > 1 and bool(place.fa.flow_style())
    place[path[-1]] = _node(value, flow=inside_flow or not isinstance(value, Mapping) or _is_short(value))


def _remove(tree: CommentedMap, path: KeyPath) -> None:
    places = [tree]
    for part in path[:-1]:
        inner = places[-1].get(part)
        if not isinstance(inner, CommentedMap):
            return
        places.append(inner)
    places[-1].pop(path[-1], None)
    for above, part, inner in reversed(list(zip(places, path, places[1:], strict=False))):
        if not inner:
            above.pop(part, None)


def _node(value: Any, *, flow: bool) -> Any:
    if isinstance(value, Mapping):
        made = CommentedMap(
            (name, _node(inner, flow=flow or not isinstance(inner, Mapping))) for name, inner in value.items()
        )
        if flow:
            made.fa.set_flow_style()
        return made
    if isinstance(value, list | tuple):
        items = CommentedSeq(_node(inner, flow=True) for inner in value)
        items.fa.set_flow_style()
        return items
    return value


def _is_short(value: Mapping[str, Any]) -> bool:
    return not any(isinstance(inner, Mapping) for inner in value.values()) and len(str(dict(value))) < WIDTH - 30


def _is_same(old: Any, new: Any) -> bool:
    return type(old) is type(new) and bool(old == new)
