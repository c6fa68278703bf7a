"""Rows made into tensors: shifted targets, exact counts, documents apart."""

from __future__ import annotations

import numpy as np
import pytest

from objectives.data.collate import IGNORED, collate_packed, collate_padded


def rows(*lengths: int) -> list[np.ndarray]:
    return [np.arange(10, 10 + length) for length in lengths]


def test_padded_pads_right_to_the_longest_and_counts_no_padding() -> None:
    batch = collate_padded(rows(3, 5), fill=0)
    assert batch["input_ids"].tolist() == [[10, 11, 12, 0, 0], [10, 11, 12, 13, 14]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert batch["targets"].tolist() == [[11, 12, IGNORED, IGNORED, IGNORED], [11, 12, 13, 14, IGNORED]]
    assert batch["units"] == 2 + 4


def test_the_fill_token_counts_where_it_is_real() -> None:
    batch = collate_padded([np.array([7, 0, 0, 7])], fill=0)
    assert batch["units"] == 3
    assert batch["targets"].tolist() == [[0, 0, 7, IGNORED]]


def test_packed_restarts_positions_and_predicts_no_document_from_another() -> None:
    batch = collate_packed([rows(3, 2)], fill=0, sequence_length=8)
    assert batch["input_ids"].tolist() == [[10, 11, 12, 10, 11, 0, 0, 0]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1, 0, 1, 2]]
    assert batch["targets"].tolist() == [[11, 12, IGNORED, 11] + [IGNORED] * 4]
    assert batch["units"] == 3
    assert "attention_mask" not in batch


@pytest.mark.parametrize("lengths", [(2,), (2, 2), (5, 3), (8,), (2, 3, 3)])
def test_packed_and_padded_count_the_same_targets(lengths: tuple[int, ...]) -> None:
    padded, packed = collate_padded(rows(*lengths), 0), collate_packed([rows(*lengths)], 0, 8)
    assert padded["units"] == packed["units"] == sum(lengths) - len(lengths)
