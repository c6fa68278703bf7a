"""The data of a language model as a whole: prepared once per study, opened by every trial."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from objectives.contract import ObjectiveError
from objectives.data.documents import Corpus
from objectives.data.files import find_files, fingerprint, one_kind
from objectives.data.prepared import once
from objectives.data.ragged import Ragged
from objectives.data.settings import TextData
from objectives.data.text import PACKED, TOKENS, CachedRows, PackedRows, TextRows, write_text
from objectives.data.tokenizer import (
    TokenizerSource,
    all_threads,
    load_tokenizer,
    local_folder,
    tokenizer_source,
    train_tokenizer,
)
from objectives.data.tokens import TokenRows, write_tokens

LAYOUT = "1"
"""Raised when what preparation writes changes: older folders are then left alone and new ones made."""


def prepare_language(data: TextData, *, folder: Path, cache: Path, model_folder: Path | None) -> dict[str, Any]:
    """Prepares text or tokens under ``cache``. What an equal corpus has left there already is used again.

    Args:
        data: The spec's ``data`` keys.
        folder: Where relative paths start.
        cache: Where results go.
        model_folder: The model's own folder: its tokenizer is used where the spec names none.

    Returns:
        JSON facts: rows and tokens, ``mean_tokens_per_row`` by batching mode, what was skipped, tokenizer, seconds.

    Raises:
        ObjectiveError: The data cannot be used; the message names the key and the way out.
    """
    started = time.monotonic()
    with all_threads():
        facts = _prepare(data, folder=folder, cache=cache, model_folder=model_folder)
    return {**facts, "seconds": time.monotonic() - started}


def _prepare(data: TextData, *, folder: Path, cache: Path, model_folder: Path | None) -> dict[str, Any]:
    files = find_files(data.path, folder)
    kind = one_kind(files, data.format)
    tokenizer = _prepare_tokenizer(data, files, folder=folder, cache=cache, kind=kind, model_folder=model_folder)
    wanted = [data.format, data.text_field, data.dtype, str(data.sequence_length), str(data.sample_bytes)]
    mark = fingerprint(files, LAYOUT, *wanted, *(tokenizer or {"fingerprint": ""})["fingerprint"].split())
    place = cache / "data" / mark
    if kind == "tokens":
        facts = once(place, lambda aside: _make_tokens(aside, data, files))
    else:
        facts = once(place, lambda aside: _make_text(aside, data, files, tokenizer))
    return {
        **facts,
        "kind": kind,
        "fingerprint": mark,
        "folder": str(place),
        "source_files": len(files),
        "source_bytes": sum(file.stat().st_size for file in files),
        "tokenizer": tokenizer,
    }


def _corpus(data: TextData, files: Sequence[Path]) -> Corpus:
    return Corpus(files, asked_format=data.format, text_field=data.text_field, sample_bytes=data.sample_bytes)


def _make_text(
    aside: Path, data: TextData, files: Sequence[Path], tokenizer: Mapping[str, Any] | None
) -> dict[str, Any]:
    assert tokenizer is not None, "text has a tokenizer"
    started = time.monotonic()
    loaded = load_tokenizer(Path(tokenizer["folder"]))
    facts = write_text(aside, _corpus(data, files), loaded, data.sequence_length)
    return {**facts, "tokenizing_seconds": time.monotonic() - started}


def _make_tokens(aside: Path, data: TextData, files: Sequence[Path]) -> dict[str, Any]:
    return write_tokens(
        aside, files, dtype=data.dtype, sequence_length=data.sequence_length, sample_bytes=data.sample_bytes
    )


def _prepare_tokenizer(
    data: TextData, files: Sequence[Path], *, folder: Path, cache: Path, kind: str, model_folder: Path | None
) -> dict[str, Any] | None:
    source = language_tokenizer(data, folder=folder, model_folder=model_folder)
    if source is None and kind == "tokens":
        return None
    if source is None:
        raise ObjectiveError(
            "objective.data.tokenizer: text needs one: a folder, a hub name, or {train: {vocab_size: 4096}} to train "
            "one on this text"
        )
    place, seconds = _tokenizer_folder(source, data, files, cache)
    loaded = load_tokenizer(place)
    pad = loaded.pad_token_id if loaded.pad_token_id is not None else loaded.eos_token_id
    return {
        "folder": str(place),
        "name": source.hub or ("trained" if source.train_vocabulary else str(source.folder)),
        "vocab_size": len(loaded),
        "fill_token": int(pad or 0),
        "fingerprint": fingerprint(
            sorted(file for file in place.iterdir() if file.suffix in (".json", ".model", ".txt"))
        ),
        "training_seconds": seconds,
    }


def _tokenizer_folder(
    source: TokenizerSource, data: TextData, files: Sequence[Path], cache: Path
) -> tuple[Path, float | None]:
    if source.train_vocabulary is None:
        return local_folder(source), None
    size = source.train_vocabulary
    corpus = _corpus(data, files)
    mark = fingerprint(files, LAYOUT, data.format, data.text_field, str(data.sample_bytes), str(size))

    def train(aside: Path) -> dict[str, Any]:
        started = time.monotonic()
        if next(iter(corpus.documents()), None) is None:
            raise ObjectiveError("objective.data: no text to train a tokenizer on in these files")
        train_tokenizer(corpus, size, aside)
        return {"seconds": time.monotonic() - started}

    place = cache / "tokenizers" / mark
    return place, once(place, train)["seconds"]


def language_tokenizer(data: TextData, *, folder: Path, model_folder: Path | None) -> TokenizerSource | None:
    """Where the tokenizer comes from: the spec's, else the model's own folder, else none."""
    if data.tokenizer is not None:
        return tokenizer_source(data.tokenizer, folder)
    has_one = model_folder is not None and any(model_folder.glob("tokenizer*"))
    return TokenizerSource(folder=model_folder) if has_one else None


@dataclass(frozen=True, kw_only=True)
class LanguageData:
    """Prepared data, opened lazily: nothing is touched before rows are asked for.

    Attributes:
        facts: What :func:`prepare_language` returned.
        sequence_length: Tokens per row at most.
        dtype: Element type of raw token files.
    """

    facts: Mapping[str, Any]
    sequence_length: int
    dtype: str

    @property
    def is_text(self) -> bool:
        """Whether rows can be tokenized on the fly: there is text."""
        return bool(self.facts["kind"] == "text")

    @property
    def _folder(self) -> Path:
        return Path(self.facts["folder"])

    def rows(self, *, tokens: str, batching: str) -> Any:
        """The data set: rows of token ids, or lists of documents for ``packed``. Sample ``i`` never changes.

        Raises:
            ObjectiveError: What was prepared is no longer there.
        """
        try:
            documents = self._documents(tokens)
            return PackedRows(documents, self._folder) if batching == "packed" else documents
        except FileNotFoundError as error:
            raise ObjectiveError(f"prepared data is gone from the cache ({error}): run the study anew") from error

    def _documents(self, tokens: str) -> Any:
        if not self.is_text:
            return TokenRows(self._folder, [Path(file) for file in self.facts["files"]], self.dtype)
        if tokens == "cached":
            return CachedRows(self._folder)
        return TextRows(self._folder, Path(self.facts["tokenizer"]["folder"]), self.sequence_length).open()

    def targets(self, *, batching: str) -> npt.NDArray[np.int64]:
        """Real units (targets) of each row, in the data set's order, shape (rows,)."""
        documents = self._document_tokens() - 1
        if batching != "packed":
            return documents
        rows = Ragged(self._folder, PACKED)
        return np.array([int(documents[rows[row]].sum()) for row in range(len(rows))], dtype=np.int64)

    def _document_tokens(self) -> npt.NDArray[np.int64]:
        if self.is_text:
            return Ragged(self._folder, TOKENS).lengths()
        return TokenRows(self._folder, [], self.dtype).lengths()


def data_key(data: TextData) -> dict[str, Any]:
    """The settings as JSON, for finding their facts again."""
    return asdict(data)
