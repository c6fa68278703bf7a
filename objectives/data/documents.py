"""Documents of text files, JSON lines and Parquet. What cannot be read is skipped, counted and named, never hidden."""

from __future__ import annotations

import codecs
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from objectives.contract import ObjectiveError
from objectives.data.files import format_of

BLOCK_BYTES = 4 * 2**20
"""A text file is read in blocks of this size; each block is a document of its own (one cut in 4 MiB)."""
LONGEST_LINE_BYTES = 64 * 2**20
"""A longer line is skipped: it would be read whole into memory."""
_EXAMPLES = 3


@dataclass(kw_only=True)
class Skips:
    """What was left out: how often, by reason, and where the first ones are."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, reason: str, where: str) -> None:
        """Counts one record (or file) that was left out."""
        self.counts[reason] += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(f"{where}: {reason}")

    def to_mapping(self) -> dict[str, Any]:
        """JSON: ``{"counts": {reason: n}, "examples": [text]}``."""
        return {"counts": dict(self.counts), "examples": list(self.examples)}

    def __str__(self) -> str:
        return "; ".join(self.examples) or "nothing was skipped"


class Corpus:
    """The documents of some files, up to a number of source bytes.

    Files are taken in an order shuffled from a fixed seed, so that a capped sample comes from all over the corpus. The
    order depends on nothing but the files.

    Args:
        files: Text, JSON lines or Parquet, in any mix.
        asked_format: ``auto`` goes by each file's ending.
        text_field: Field or column that holds the text.
        sample_bytes: Stop after so many bytes of text (UTF-8).
    """

    def __init__(self, files: Sequence[Path], *, asked_format: str, text_field: str, sample_bytes: int) -> None:
        self._files = list(files)
        random.Random(0).shuffle(self._files)
        self._format = asked_format
        self._text_field = text_field
        self._sample_bytes = sample_bytes

    def documents(self, skips: Skips | None = None, limit_bytes: int | None = None) -> Iterator[str]:
        """The documents, none empty. Each call reads anew.

        Args:
            skips: Where to count what is left out.
            limit_bytes: A smaller limit than the corpus's own.
        """
        skips = Skips() if skips is None else skips
        room = min(self._sample_bytes, limit_bytes or self._sample_bytes)
        for file in self._files:
            for text in self._read(file, skips):
                if room <= 0:
                    return
                room -= len(text.encode("utf-8", "replace"))
                yield text

    def _read(self, file: Path, skips: Skips) -> Iterator[str]:
        readers = {"text": _text, "jsonl": _json_lines, "parquet": _parquet}
        reader = readers[format_of(file, self._format)]
        try:
            yield from reader(file, self._text_field, skips)
        except OSError as error:
            skips.add(f"unreadable ({error.strerror or type(error).__name__})", file.name)


def _text(file: Path, _text_field: str, skips: Skips) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    empty = True
    with file.open("rb") as source:
        while block := source.read(BLOCK_BYTES):
            if empty and b"\0" in block[:8192]:
                skips.add("not text (NUL bytes)", file.name)
                return
            empty = False
            if text := decoder.decode(block):
                yield text
    if empty:
        skips.add("empty", file.name)
    if rest := decoder.decode(b"", final=True):
        yield rest


def _json_lines(file: Path, text_field: str, skips: Skips) -> Iterator[str]:
    with file.open("rb") as source:
        for number, line in enumerate(_lines(source), start=1):
            text = _text_of_line(line, text_field)
            if isinstance(text, _Reason):
                skips.add(text.reason, f"{file.name}:{number}")
            elif text is not None:
                yield text


@dataclass(frozen=True)
class _Reason:
    reason: str


def _text_of_line(line: bytes | None, text_field: str) -> str | _Reason | None:
    if line is None:
        return _Reason(f"line over {LONGEST_LINE_BYTES >> 20} MiB")
    if not line.strip():
        return None
    try:
        record = json.loads(line.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return _Reason("not JSON")
    if not isinstance(record, dict) or text_field not in record:
        found = f"keys: {', '.join(map(str, record))}" if isinstance(record, dict) else f"a {type(record).__name__}"
        return _Reason(f"no field {text_field!r} ({found[:100]})")
    return _usable(record[text_field], text_field)


def _usable(text: Any, text_field: str) -> str | _Reason:
    if not isinstance(text, str):
        return _Reason(f"field {text_field!r} is not text")
    return text or _Reason("empty")


def _lines(source: BinaryIO) -> Iterator[bytes | None]:
    """Lines of at most ``LONGEST_LINE_BYTES``; None stands for a longer one, which is read over."""
    while line := source.readline(LONGEST_LINE_BYTES):
        if len(line) < LONGEST_LINE_BYTES or line.endswith(b"\n"):
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = source.readline(LONGEST_LINE_BYTES)
        yield None


def _parquet(file: Path, text_field: str, skips: Skips) -> Iterator[str]:
    import pyarrow  # starts a thread at import: never in a process that forks
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(file) as source:
            if text_field not in source.schema_arrow.names:
                names = ", ".join(source.schema_arrow.names)
                raise ObjectiveError(
                    f"objective.data.text_field: {file.name} has no column {text_field!r}, only {names}"
                )
            for batch in source.iter_batches(batch_size=1024, columns=[text_field], use_threads=False):
                for number, value in enumerate(batch.column(0).to_pylist()):
                    text = _usable(value, text_field)
                    if isinstance(text, _Reason):
                        skips.add(text.reason, f"{file.name} row {number}")
                    else:
                        yield text
    except pyarrow.ArrowInvalid as error:
        skips.add(f"not Parquet ({str(error)[:100]})", file.name)
