"""Text made ready for trials: cut into pieces, shuffled once, tokenized once, packed once.

Both choices of the knob ``tokens`` read what is written here, and give the identical rows: ``on-the-fly`` tokenizes the
pieces of text in the loader, ``cached`` reads the tokens that preparation made of the same pieces.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from objectives.contract import ObjectiveError
from objectives.data.documents import Corpus, Skips
from objectives.data.packing import first_fit
from objectives.data.ragged import Array, Ragged, write_ragged
from objectives.data.tokenizer import encode, load_tokenizer, one_thread

TEXT, TOKENS, PACKED = "text", "tokens", "packed"
"""Names of the files: pieces of text, their tokens, and the documents of each packed row."""
_BATCH = 512
_SAMPLE_DOCUMENTS = 64
_SAMPLE_CHARACTERS = 8192
SHORTEST_ROW = 2
"""A row needs a token to predict and one to predict it from."""


def write_text(folder: Path, corpus: Corpus, tokenizer: Any, sequence_length: int) -> dict[str, Any]:
    """Writes text, tokens and packed rows into the folder. Returns facts about them.

    Raises:
        ObjectiveError: No document was left to learn from; the message says what was skipped and why.
    """
    per_token = characters_per_token(corpus, tokenizer)
    skips = Skips()
    pieces = _pieces(corpus.documents(skips), max(1, round(per_token * sequence_length)))
    write_ragged(folder, "pieces", (piece.encode("utf-8", "replace") for piece in pieces), np.uint8)
    raw = Ragged(folder, "pieces")
    order = np.random.default_rng(0).permutation(len(raw))
    _write_rows(folder, raw, order, tokenizer, sequence_length)
    _remove(folder, "pieces")
    tokens = Ragged(folder, TOKENS)
    if not len(tokens):
        raise ObjectiveError(f"objective.data: no text to train on in these files ({skips})")
    return {
        **write_packed(folder, tokens.lengths(), sequence_length),
        "characters_per_token": per_token,
        "skipped": skips.to_mapping(),
        "largest_token": int(max(int(tokens[row].max()) for row in range(len(tokens)))),
    }


def characters_per_token(corpus: Corpus, tokenizer: Any) -> float:
    """The mean over the beginnings of some documents; 4 where there is no document."""
    texts = [text[:_SAMPLE_CHARACTERS] for text in itertools.islice(corpus.documents(), _SAMPLE_DOCUMENTS)]
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    tokens = sum(map(len, encode(tokenizer, texts, 10**6))) if texts else 0
    return sum(map(len, texts)) / tokens if tokens else 4.0


def _pieces(documents: Iterable[str], width: int) -> Iterator[str]:
    for text in documents:
        for start in range(0, len(text), width):
            yield text[start : start + width]


def _write_rows(folder: Path, raw: Ragged, order: npt.NDArray[np.int64], tokenizer: Any, sequence_length: int) -> None:
    dtype = np.uint16 if len(tokenizer) <= 2**16 else np.uint32
    kept: list[int] = []

    def rows() -> Iterator[Array]:
        for start in range(0, len(order), _BATCH):
            chosen = order[start : start + _BATCH]
            for index, ids in zip(
                chosen, encode(tokenizer, [_decode(raw[i]) for i in chosen], sequence_length), strict=True
            ):
                if len(ids) >= SHORTEST_ROW:
                    kept.append(int(index))
                    yield np.asarray(ids, dtype=dtype)

    write_ragged(folder, TOKENS, rows(), dtype)
    write_ragged(folder, TEXT, (raw[index] for index in kept), np.uint8)


def _decode(piece: Array) -> str:
    return piece.tobytes().decode("utf-8", "replace")


def _remove(folder: Path, name: str) -> None:
    for file in folder.glob(f"{name}.*"):
        file.unlink()


def write_packed(folder: Path, lengths: npt.NDArray[np.int64], sequence_length: int) -> dict[str, Any]:
    """Writes the documents of each packed row. Returns the facts that both batching modes share.

    A row's real units are its targets: every token but the first of each document.
    """
    rows = write_ragged(folder, PACKED, (np.asarray(row) for row in first_fit(lengths, sequence_length)), np.int64)
    targets = int((lengths - 1).sum())
    padded = targets / max(len(lengths), 1)
    return {
        "rows": len(lengths),
        "packed_rows": rows,
        "tokens": int(lengths.sum()),
        "targets": targets,
        "longest_row": int(lengths.max(initial=0)),
        "shortest_row": int(lengths.min(initial=sequence_length)),
        "mean_tokens_per_row": {"padded": padded, "length-grouped": padded, "packed": targets / max(rows, 1)},
    }


class TextRows:
    """Rows tokenized when they are asked for, in whatever process asks. Samples are token ids, shape (tokens,)."""

    def __init__(self, folder: Path, tokenizer_folder: Path, sequence_length: int) -> None:
        self._text = Ragged(folder, TEXT)
        self._tokenizer_folder = tokenizer_folder
        self._sequence_length = sequence_length
        self._tokenizer: Any = None

    def open(self) -> TextRows:
        """Loads the tokenizer now, so that forked loader workers inherit it."""
        if self._tokenizer is None:
            one_thread()
            self._tokenizer = load_tokenizer(self._tokenizer_folder)
        return self

    def __len__(self) -> int:
        return len(self._text)

    def __getitem__(self, row: int) -> npt.NDArray[np.int64]:
        self.open()
        ids = encode(self._tokenizer, [_decode(self._text[row])], self._sequence_length)[0]
        return np.asarray(ids, dtype=np.int64)


class CachedRows:
    """Rows tokenized ahead, read from the memory-mapped file. Samples as :class:`TextRows` gives them."""

    def __init__(self, folder: Path) -> None:
        self._tokens = Ragged(folder, TOKENS)

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, row: int) -> npt.NDArray[np.int64]:
        return self._tokens[row].astype(np.int64)


class PackedRows:
    """Packed rows over any rows of documents. A sample is the list of its documents' token ids."""

    def __init__(self, documents: Any, folder: Path) -> None:
        self._documents = documents
        self._rows = Ragged(folder, PACKED)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> list[npt.NDArray[np.int64]]:
        return [self._documents[int(document)] for document in self._rows[row]]
