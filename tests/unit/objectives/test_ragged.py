"""Rows of unequal length in one memory-mapped file."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from objectives.data.ragged import Ragged, write_ragged


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.int64])
def test_rows_come_back_as_they_were_written(tmp_path: Path, dtype: type) -> None:
    rows = [np.arange(n, dtype=dtype) for n in (3, 0, 5, 1)]
    assert write_ragged(tmp_path, "x", rows, dtype) == 4
    found = Ragged(tmp_path, "x")
    assert [row.tolist() for row in (found[i] for i in range(len(found)))] == [row.tolist() for row in rows]
    assert found[-1].tolist() == [0]
    assert found[0].dtype == dtype
    assert found.lengths().tolist() == [3, 0, 5, 1]


def test_travels_as_a_place_not_as_its_content(tmp_path: Path) -> None:
    write_ragged(tmp_path, "x", [np.arange(100_000)], np.int64)
    sent = pickle.dumps(Ragged(tmp_path, "x"))
    assert len(sent) < 1000
    assert pickle.loads(sent)[0][-1] == 99_999


def test_bytes_are_rows_too_and_no_rows_are_no_fault(tmp_path: Path) -> None:
    write_ragged(tmp_path, "text", [b"ab", "é".encode()], np.uint8)
    assert Ragged(tmp_path, "text")[1].tobytes().decode() == "é"
    write_ragged(tmp_path, "none", [], np.int64)
    assert len(Ragged(tmp_path, "none")) == 0


def test_outside_and_missing_rows_are_refused(tmp_path: Path) -> None:
    write_ragged(tmp_path, "x", [b"a"], np.uint8)
    with pytest.raises(IndexError):
        Ragged(tmp_path, "x")[1]
    with pytest.raises(FileNotFoundError, match="no 'y'"):
        Ragged(tmp_path, "y")
