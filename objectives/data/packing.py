"""Documents packed into rows of one length: first fit within a window, the same rows every time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

OPEN_ROWS = 32
"""Rows kept open at once. More pack a little tighter and mix samples from farther apart in the data's order."""


@dataclass(kw_only=True)
class _Row:
    room: int
    documents: list[int] = field(default_factory=list)


def first_fit(lengths: Iterable[int], capacity: int, open_rows: int = OPEN_ROWS) -> Iterator[list[int]]:
    """Indices of the documents of each packed row, in the order in which rows close.

    Args:
        lengths: Tokens per document, none above ``capacity``.
        capacity: Tokens a row can hold.
        open_rows: How many rows may wait for more documents; the oldest closes when one more is needed.
    """
    waiting: list[_Row] = []
    for document, length in enumerate(lengths):
        assert length <= capacity, f"document {document} has {length} tokens, a row holds {capacity}"
        row = next((row for row in waiting if row.room >= length), None)
        if row is None:
            row = _Row(room=capacity)
            waiting.append(row)
        row.documents.append(document)
        row.room -= int(length)
        if row.room == 0:
            waiting.remove(row)
            yield row.documents
        elif len(waiting) > open_rows:
            yield waiting.pop(0).documents
    for row in waiting:
        yield row.documents
