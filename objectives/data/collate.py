"""Rows of tokens made into tensors: targets already shifted, padding and first tokens never counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

IGNORED = -100
"""Target of a position that predicts nothing (cross-entropy's own word for it)."""
Tokens = npt.NDArray[np.int64]
Batch = dict[str, Any]
"""``input_ids`` and ``targets`` of shape (rows, tokens); ``targets[r, t]`` is the token after ``input_ids[r, t]``. Then
``attention_mask`` (padded rows) or ``position_ids`` (packed rows), and ``units``: the number of targets, an int."""


@dataclass(frozen=True, kw_only=True)
class Collator:
    """Makes micro-batches in loader workers. Small and picklable: however workers are started, no model travels along.

    Attributes:
        packed: Whether samples are lists of documents.
        fill: Token id of the padding.
        sequence_length: Tokens of a packed row.
    """

    packed: bool
    fill: int
    sequence_length: int

    def __call__(self, samples: Sequence[Any]) -> Batch:
        """Padded to the longest row, or packed rows filled up."""
        if self.packed:
            return collate_packed(samples, self.fill, self.sequence_length)
        return collate_padded(samples, self.fill)


def collate_padded(rows: Sequence[Tokens], fill: int) -> Batch:
    """One micro-batch padded on the right to its longest row.

    Args:
        rows: Token ids, each of shape (tokens,).
        fill: Token id of the padding; the attention mask keeps it out.
    """
    shape = (len(rows), max(map(len, rows)))
    ids, targets = np.full(shape, fill, dtype=np.int64), np.full(shape, IGNORED, dtype=np.int64)
    mask = np.zeros(shape, dtype=np.int64)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = row
        mask[place, : len(row)] = 1
        targets[place, : len(row) - 1] = row[1:]
    return _batch(ids, targets, attention_mask=mask)


def collate_packed(rows: Sequence[Sequence[Tokens]], fill: int, sequence_length: int) -> Batch:
    """One micro-batch of packed rows, each filled up to ``sequence_length``.

    Positions start at 0 in each document: transformers reads the borders between documents from that
    (``masking_utils.find_packed_sequence_indices``) as long as no attention mask is given. The fill at a row's end is a
    document of its own. No document's first token is a target.
    """
    shape = (len(rows), sequence_length)
    ids, targets = np.full(shape, fill, dtype=np.int64), np.full(shape, IGNORED, dtype=np.int64)
    positions = np.zeros(shape, dtype=np.int64)
    for place, documents in enumerate(rows):
        start = 0
        for document in documents:
            end = start + len(document)
            ids[place, start:end] = document
            targets[place, start : end - 1] = document[1:]
            positions[place, start:end] = np.arange(len(document))
            start = end
        positions[place, start:] = np.arange(sequence_length - start)
    return _batch(ids, targets, position_ids=positions)


def _batch(ids: Tokens, targets: Tokens, **more: Tokens) -> Batch:
    tensors = {name: torch.from_numpy(array) for name, array in {"input_ids": ids, "targets": targets, **more}.items()}
    return {**tensors, "units": int((targets != IGNORED).sum())}
