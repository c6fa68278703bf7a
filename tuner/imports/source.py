"""The rim: a user's files as plain data. Nothing in them is evaluated, expanded or unpickled."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.errors import TightfitError
from tuner.imports.arguments import parse_arguments
from tuner.spec.yaml_text import KeyPath, parse_yaml

LARGEST_BYTES = 1_000_000
ENDINGS = (".json", ".yaml", ".yml", ".toml", ".sh", ".sbatch", ".txt", ".args")
"""Files of a folder that are looked at."""
PICKLED = (".bin", ".pt", ".pth", ".pkl")


class ImportRefused(TightfitError):
    """The file cannot be read, or no format is recognised in it. Nothing was written."""

    exit_status = 2


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file.

    Attributes:
        path: Where it lies.
        values: Its keys as plain data. Of a command line: by option, without the dashes.
        lines: 1-based line by path of keys; empty where lines are not known.
        written_as: ``mapping`` (JSON, YAML, TOML) or ``arguments``, where every value is a word to be read.
        ranks: Processes that the launcher in a command line starts; None without one.
        environment: Variables that a command line or shell file sets.
        words: Words of a command line that belong to no option.
        problems: What was refused while reading: (key, reason, line).
    """

    path: Path
    values: Mapping[str, Any]
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    written_as: str = "mapping"
    ranks: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    problems: tuple[tuple[str, str, int | None], ...] = ()


def sources(paths: tuple[Path, ...]) -> tuple[Source, ...]:
    """Every file named; of a folder, those of its files whose ending may be a configuration's.

    Raises:
        ImportRefused: One cannot be read. In a folder, what cannot be read is passed over.
    """
    found: list[Source] = []
    for path in paths:
        found += _of_folder(path) if path.is_dir() else [source_of(path)]
    return tuple(found)


def _of_folder(folder: Path) -> list[Source]:
    found = []
    for path in sorted(each for each in folder.iterdir() if each.is_file() and each.suffix in ENDINGS):
        try:
            found.append(source_of(path))
        except ImportRefused:
            continue
    return found


def source_of(path: Path) -> Source:
    """One file, by what its text looks like.

    Raises:
        ImportRefused: It is missing, too large, pickled, not text, or holds no keys.
    """
    text = _text(path)
    if path.suffix == ".toml":
        return _toml(path, text)
    if text.lstrip().startswith("{"):
        return _json(path, text)
    if path.suffix in (".sh", ".sbatch", ".txt", ".args") or _looks_like_arguments(text):
        return _arguments(path, text)
    return _yaml(path, text)


def _text(path: Path) -> str:
    if path.suffix in PICKLED:
        raise ImportRefused(
            f"{path}: a pickled file could run anything and is never opened; "
            "write the arguments as JSON instead: `args.to_json_string()` of TrainingArguments does it"
        )
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise ImportRefused(f"{path}: larger than {LARGEST_BYTES} bytes, so no configuration")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ImportRefused(f"{path}: {error.strerror or 'cannot be read'}") from error
    except UnicodeDecodeError as error:
        raise ImportRefused(f"{path}: not text; name a JSON, YAML or TOML file, or one with a command line") from error


def _looks_like_arguments(text: str) -> bool:
    """Whether the first line that says anything starts with an option, a launcher or a shell's first line."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return first.startswith(("--", "#!", "torchrun ", "accelerate ", "deepspeed ", "python ", "python3 ", "axolotl "))


def _json(path: Path, text: str) -> Source:
    doubles: list[tuple[str, str, int | None]] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in items]
        doubles.extend((name, "the key is written twice", None) for name in set(names) if names.count(name) > 1)
        return dict(items)

    try:
        values = json.loads(text, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as error:
        raise ImportRefused(f"{path}: not JSON: {error}") from error
    read = parse_yaml(text)  # JSON is YAML: only the lines are taken from it
    lines = read.lines if read.readable and read.value == values else {}
    return Source(path=path, values=_keys(path, values), lines=lines, problems=tuple(doubles))


def _yaml(path: Path, text: str) -> Source:
    read = parse_yaml(text)
    if not read.readable:
        problem = read.problems[-1]
        raise ImportRefused(f"{path}:{problem.line or 1}: {problem.reason}")
    told = tuple((each.where, f"{each.reason}. {each.fix}".rstrip(), each.line) for each in read.problems)
    return Source(path=path, values=_keys(path, read.value), lines=read.lines, problems=told)


def _toml(path: Path, text: str) -> Source:
    try:
        return Source(path=path, values=_keys(path, tomllib.loads(text)))
    except tomllib.TOMLDecodeError as error:
        raise ImportRefused(f"{path}: not TOML: {error}") from error


def _arguments(path: Path, text: str) -> Source:
    found = parse_arguments(text)
    if not found.values and not found.environment and not found.words:
        raise ImportRefused(f"{path}: there are no options (--name value) in it")
    return Source(
        path=path,
        values=found.values,
        written_as="arguments",
        ranks=found.ranks,
        environment=found.environment,
        words=found.words,
        problems=tuple((key, reason, None) for key, reason in found.problems),
    )


def _keys(path: Path, values: Any) -> dict[str, Any]:
    if not isinstance(values, dict) or not values:
        raise ImportRefused(f"{path}: there are no keys in it")
    return {str(key): value for key, value in values.items()}
