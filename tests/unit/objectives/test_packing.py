"""Packed rows: every document once, no row over its size, the same rows every time."""

from __future__ import annotations

import random
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from objectives.data.packing import first_fit


@given(st.lists(st.integers(1, 50), max_size=200), st.integers(1, 8))
def test_every_document_once_and_no_row_too_full(lengths: list[int], open_rows: int) -> None:
    rows = list(first_fit(lengths, 50, open_rows))
    assert sorted(chain.from_iterable(rows)) == list(range(len(lengths)))
    assert all(sum(lengths[document] for document in row) <= 50 for row in rows)
    assert rows == list(first_fit(lengths, 50, open_rows))


def test_documents_of_a_row_keep_their_order() -> None:
    assert list(first_fit([30, 40, 20, 10], 50)) == [[0, 2], [1, 3]]


def test_packs_short_documents_tightly() -> None:
    numbers = random.Random(0)
    lengths = [numbers.randint(5, 60) for _ in range(2000)]
    rows = list(first_fit(lengths, 128))
    assert sum(lengths) / (128 * len(rows)) > 0.97
