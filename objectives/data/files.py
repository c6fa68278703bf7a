"""Which files a ``data.path`` means, in which format, and a fingerprint of their content."""

from __future__ import annotations

import glob
import hashlib
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

from objectives.contract import ObjectiveError

STDLIB = "stdlib"
_LEFT_OUT = frozenset({"site-packages", "dist-packages", "__pycache__", "test", "tests", "idlelib"})
"""Parts of the standard library's folder that are not on every machine, or are not the library's own."""
_BY_ENDING = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet", ".pq": "parquet",
    ".bin": "tokens", ".npy": "tokens",
}  # fmt: skip
_WHOLE_BYTES = 4 * 2**20
"""Files up to this size enter the fingerprint whole; of larger ones the two ends, size and time of change."""


def find_files(path: str | Sequence[str], folder: Path) -> list[Path]:
    """The files a path means, sorted by name, each once. Relative paths start at ``folder``.

    Raises:
        ObjectiveError: Nothing is there.
    """
    parts = [path] if isinstance(path, str) else list(path)
    found = {file for part in parts for file in _matches(part, folder)}
    if not found:
        raise ObjectiveError(
            f"objective.data.path: {path!r} means no file (relative paths start at {folder}). Give a file, a folder, a "
            f"pattern like 'corpus/**/*.jsonl', or {STDLIB!r} for the Python standard library's sources"
        )
    return sorted(found)


def _matches(part: str, folder: Path) -> Iterable[Path]:
    if part == STDLIB:
        return _standard_library()
    place = Path(part).expanduser()
    place = place if place.is_absolute() else folder / place
    if place.is_dir():
        return _files_under(place)
    matches = glob.glob(str(place), recursive=True)  # noqa: PTH207 (Path.glob takes no absolute pattern)
    return (Path(name) for name in matches if Path(name).is_file())


def _files_under(place: Path) -> Iterable[Path]:
    return (file for file in place.rglob("*") if file.is_file() and not file.name.startswith("."))


def _standard_library() -> Iterable[Path]:
    root = Path(sysconfig.get_path("stdlib"))
    return (file for file in root.rglob("*.py") if not _LEFT_OUT.intersection(file.relative_to(root).parts))


def format_of(file: Path, asked: str) -> str:
    """``text``, ``jsonl``, ``parquet`` or ``tokens``: as asked, or by the file's ending."""
    return asked if asked != "auto" else _BY_ENDING.get(file.suffix.lower(), "text")


def one_kind(files: Sequence[Path], asked: str) -> str:
    """``tokens`` when every file holds tokens, ``text`` when none does.

    Raises:
        ObjectiveError: Some do and some do not.
    """
    tokens = [file for file in files if format_of(file, asked) == "tokens"]
    if not tokens:
        return "text"
    if len(tokens) == len(files):
        return "tokens"
    other = next(file for file in files if file not in set(tokens))
    raise ObjectiveError(
        f"objective.data.path: {tokens[0].name} holds tokens and {other.name} holds text: give one kind or set `format`"
    )


def fingerprint(files: Sequence[Path], *more: str) -> str:
    """A digest of the files' names and content, and of whatever else decides what is made of them (32 hex digits)."""
    digest = hashlib.blake2b(digest_size=16)
    for text in more:
        digest.update(text.encode("utf-8", "surrogateescape") + b"\0")
    for file in files:
        digest.update(str(file).encode("utf-8", "surrogateescape") + b"\0")
        digest.update(_content_digest(file))
    return digest.hexdigest()


def _content_digest(file: Path) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    try:
        facts = file.stat()
        digest.update(str(facts.st_size).encode())
        with file.open("rb") as source:
            digest.update(source.read(_WHOLE_BYTES))
            if facts.st_size > _WHOLE_BYTES:
                source.seek(-min(_WHOLE_BYTES, facts.st_size - _WHOLE_BYTES), 2)
                digest.update(source.read(_WHOLE_BYTES) + str(facts.st_mtime_ns).encode())
    except OSError as error:
        digest.update(type(error).__name__.encode())
    return digest.digest()
