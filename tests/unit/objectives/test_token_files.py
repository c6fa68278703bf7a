"""Token files that somebody else has made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from objectives.contract import ObjectiveError
from objectives.data.tokens import TokenRows, write_tokens


def index(folder: Path, *files: Path, length: int = 8, sample_bytes: int = 10**6, dtype: str = "uint16") -> dict:
    return write_tokens(folder, files, dtype=dtype, sequence_length=length, sample_bytes=sample_bytes)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "int32", "int64"])
def test_raw_files_are_cut_into_rows_that_cover_them(tmp_path: Path, dtype: str) -> None:
    file = tmp_path / "a.bin"
    np.arange(20, dtype=dtype).tofile(file)
    facts = index(tmp_path, file, dtype=dtype)
    rows = TokenRows(tmp_path, [file], dtype)
    assert sorted(rows[i].tolist() for i in range(len(rows))) == [
        list(range(8)), list(range(8, 16)), list(range(16, 20)),
    ]  # fmt: skip
    assert (facts["rows"], facts["tokens"], facts["targets"]) == (3, 20, 17)
    assert (facts["largest_token"], facts["longest_row"], facts["shortest_row"]) == (19, 8, 4)
    assert rows[0].dtype == np.int64


def test_two_dimensional_arrays_are_cut_within_their_own_rows(tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    np.save(file, np.arange(30, dtype=np.int32).reshape(3, 10))
    index(tmp_path, file)
    rows = TokenRows(tmp_path, [file], "uint16")
    found = sorted(rows[i].tolist() for i in range(len(rows)))
    assert found == sorted(
        [list(range(r * 10, r * 10 + 8)) for r in range(3)] + [[r * 10 + 8, r * 10 + 9] for r in range(3)]
    )


def test_several_files_one_fixed_order_and_a_capped_sample(tmp_path: Path) -> None:
    files = [tmp_path / "a.bin", tmp_path / "b.bin"]
    for number, file in enumerate(files):
        np.full(64, number, dtype=np.uint16).tofile(file)
    assert index(tmp_path, *files)["rows"] == 16
    order = np.load(tmp_path / "index.npy").tolist()
    assert {row[0] for row in order} == {0, 1}
    assert index(tmp_path, *files, sample_bytes=64)["rows"] == 4
    assert np.load(tmp_path / "index.npy").tolist() == order[:4]


def test_what_is_no_line_of_tokens_is_refused(tmp_path: Path) -> None:
    empty, floats, negative, broken = (tmp_path / name for name in ("e.bin", "f.npy", "n.npy", "b.npy"))
    empty.touch()
    np.save(floats, np.zeros(9))
    np.save(negative, np.array([1, -2, 3]))
    broken.write_bytes(b"no array")
    for file, text in (
        (empty, "no row"),
        (floats, "holds float64"),
        (negative, "token -2"),
        (broken, "cannot be read"),
    ):
        with pytest.raises(ObjectiveError, match=text):
            index(tmp_path, file)


def test_a_file_that_has_become_shorter_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    np.arange(16, dtype=np.uint16).tofile(file)
    index(tmp_path, file)
    np.arange(4, dtype=np.uint16).tofile(file)
    rows = TokenRows(tmp_path, [file], "uint16")
    with pytest.raises(ObjectiveError, match="shorter since it was prepared"):
        [rows[i] for i in range(2)]
