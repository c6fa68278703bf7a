"""A configuration file with some values replaced, as text. YAML keeps its comments; the file is never written to."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from objectives.script.grammar import GrammarError

LARGEST_FILE_BYTES = 4_000_000


def patched(file: Path, values: Mapping[str, Any]) -> str:
    """The file's text with these values by dotted key (``training.micro_batch``; a number is a place in a list).

    The last part of a key may be new; everything above it must be there, so that a misspelt key is found.

    Raises:
        GrammarError: The file cannot be read, or has no such place.
    """
    text = _text(file)
    return _as_json(text, file, values) if file.suffix == ".json" else _as_yaml(text, file, values)


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > LARGEST_FILE_BYTES:
            raise GrammarError(f"{file} is larger than {LARGEST_FILE_BYTES} bytes: it is no configuration")
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GrammarError(f"the file to patch cannot be read: {error}") from error


def _as_json(text: str, file: Path, values: Mapping[str, Any]) -> str:
    try:
        read = json.loads(text)
    except ValueError as error:
        raise GrammarError(f"{file} is not JSON: {error}") from error
    _replace(read, file, values)
    return json.dumps(read, indent=2) + "\n"


def _as_yaml(text: str, file: Path, values: Mapping[str, Any]) -> str:
    yaml = YAML(typ="rt", pure=True)  # round trip: constructs nothing, keeps comments, quotes and order
    yaml.preserve_quotes = True
    try:
        read = yaml.load(text)
    except YAMLError as error:
        raise GrammarError(f"{file} is not YAML: {error}") from error
    _replace(read, file, values)
    out = io.StringIO()
    yaml.dump(read, out)
    return out.getvalue()


def _replace(read: Any, file: Path, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        *above, last = key.split(".")
        place = read
        for part in above:
            place = _inner(place, part, key, file)
        if isinstance(place, list):
            _inner(place, last, key, file)  # a list grows by nothing
            place[int(last)] = value
        elif isinstance(place, dict):
            place[last] = value
        else:
            raise GrammarError(f"{file} has no place for {key!r}: what should hold {last!r} is no mapping")


def _inner(place: Any, part: str, key: str, file: Path) -> Any:
    if isinstance(place, dict) and part in place:
        return place[part]
    if isinstance(place, list) and part.isdigit() and int(part) < len(place):
        return place[int(part)]
    raise GrammarError(f"{file} has no {part!r} on the way to {key!r}")
