"""Tokens that somebody else has made: memory-mapped ``.npy`` or raw ``.bin`` files, read where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from objectives.contract import ObjectiveError
from objectives.data.ragged import Array
from objectives.data.text import SHORTEST_ROW, write_packed

INDEX = "index.npy"
"""Shape (rows, 3): number of the file, first token, tokens; in the shuffled order of the samples."""


def map_tokens(file: Path, dtype: str) -> Array:
    """The file's tokens as one memory-mapped line (a two-dimensional ``.npy`` row after row).

    Raises:
        ObjectiveError: The file is no array of whole numbers, or cannot be read.
    """
    try:
        values: Array = np.load(file, mmap_mode="r") if file.suffix == ".npy" else _map_raw(file, dtype)
    except (OSError, ValueError, EOFError) as error:
        raise ObjectiveError(f"objective.data.path: {file} cannot be read as tokens: {error}") from error
    if values.dtype.kind not in "iu" or values.ndim not in (1, 2):
        raise ObjectiveError(
            f"objective.data.path: {file} holds {values.dtype} of {values.ndim} dimensions, not token ids of one or two"
        )
    return values


def _map_raw(file: Path, dtype: str) -> Array:
    if file.stat().st_size == 0:
        return np.empty(0, dtype)
    return np.memmap(file, dtype=dtype, mode="r")


def write_tokens(
    folder: Path, files: Sequence[Path], *, dtype: str, sequence_length: int, sample_bytes: int
) -> dict[str, Any]:
    """Writes the index and the packed rows. Returns facts about them.

    Raises:
        ObjectiveError: There is no row of at least two tokens, or there are negative tokens.
    """
    index = np.concatenate(
        [_cut(number, map_tokens(file, dtype), sequence_length) for number, file in enumerate(files)]
    )
    index = index[np.random.default_rng(0).permutation(len(index))]
    itemsize = map_tokens(files[0], dtype).dtype.itemsize
    index = index[: max(1, sample_bytes // (sequence_length * itemsize))]
    if not len(index):
        raise ObjectiveError("objective.data: no row of at least two tokens in these files")
    np.save(folder / INDEX, index)
    rows = TokenRows(folder, files, dtype)
    smallest, largest = _extremes(rows)
    if smallest < 0:
        raise ObjectiveError(f"objective.data: token {smallest} in these files; tokens are not negative. Set `dtype`?")
    return {
        **write_packed(folder, index[:, 2], sequence_length),
        "largest_token": largest,
        "files": [str(file) for file in files],
    }


def _cut(number: int, tokens: Array, sequence_length: int) -> npt.NDArray[np.int64]:
    """Rows of one file, shape (rows, 3); a two-dimensional file is cut within its own rows only."""
    height, width = (1, tokens.shape[0]) if tokens.ndim == 1 else tokens.shape
    starts = np.arange(0, width, sequence_length, dtype=np.int64)
    counts = np.minimum(sequence_length, width - starts)
    starts, counts = starts[counts >= SHORTEST_ROW], counts[counts >= SHORTEST_ROW]
    first = (np.arange(height, dtype=np.int64)[:, None] * width + starts[None, :]).ravel()
    return np.stack([np.full(len(first), number), first, np.tile(counts, height)], axis=1)


def _extremes(rows: TokenRows) -> tuple[int, int]:
    smallest, largest = 0, 0
    for row in range(len(rows)):
        tokens = rows[row]
        smallest, largest = min(smallest, int(tokens.min())), max(largest, int(tokens.max()))
    return smallest, largest


class TokenRows:
    """Rows of token files. Samples are token ids, shape (tokens,). Files are mapped when a process first needs them."""

    def __init__(self, folder: Path, files: Sequence[Path], dtype: str) -> None:
        self._index: npt.NDArray[np.int64] = np.load(folder / INDEX, mmap_mode="r")
        self._files = list(files)
        self._dtype = dtype
        self._mapped: dict[int, Array] = {}

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, row: int) -> npt.NDArray[np.int64]:
        number, first, count = (int(value) for value in self._index[row])
        if number not in self._mapped:
            self._mapped[number] = map_tokens(self._files[number], self._dtype).reshape(-1)
        tokens = self._mapped[number][first : first + count]
        if len(tokens) != count:
            raise ObjectiveError(f"{self._files[number]} has become shorter since it was prepared: run the study anew")
        return tokens.astype(np.int64)

    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens per row, shape (rows,)."""
        return np.asarray(self._index[:, 2])
