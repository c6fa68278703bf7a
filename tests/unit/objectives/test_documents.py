"""Documents out of files as people have them: broken, empty, huge, half missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from objectives.contract import ObjectiveError
from objectives.data import documents
from objectives.data.documents import Corpus, Skips


def read(file: Path, *, sample_bytes: int = 10**9, field: str = "text") -> tuple[list[str], Skips]:
    skips = Skips()
    corpus = Corpus([file], asked_format="auto", text_field=field, sample_bytes=sample_bytes)
    return list(corpus.documents(skips)), skips


def test_broken_utf8_is_replaced_and_a_byte_order_mark_dropped(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"\xef\xbb\xbfgood \xff\xfe bad \xc3")
    assert read(file)[0] == [
        "good \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} bad ",
        "\N{REPLACEMENT CHARACTER}",
    ]


def test_characters_survive_the_border_between_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "BLOCK_BYTES", 3)
    file = tmp_path / "a.txt"
    file.write_text("äöü€𝄞x", encoding="utf-8")
    assert "".join(read(file)[0]) == "äöü€𝄞x"


@pytest.mark.parametrize(
    ("content", "reason"), [(b"", "empty"), (b"\x89PNG\0\0\0", "not text (NUL bytes)")], ids=["empty", "binary"]
)
def test_empty_and_binary_files_are_counted_not_read(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(content)
    texts, skips = read(file)
    assert texts == []
    assert skips.to_mapping() == {"counts": {reason: 1}, "examples": [f"a.py: {reason}"]}


def test_unreadable_files_are_counted(tmp_path: Path) -> None:
    texts, skips = read(tmp_path / "gone.jsonl")
    assert texts == []
    assert list(skips.counts) == ["unreadable (No such file or directory)"]


def test_json_lines_good_and_bad(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    records = [["text"], {"body": "x"}, {"text": 3}, {"text": ""}, {"text": "zwei\ud800"}]
    lines = [json.dumps({"text": "one"}), "", "{broken", "[" * 100_000, *map(json.dumps, records)]
    file.write_text("\n".join(lines), encoding="utf-8")
    texts, skips = read(file)
    assert texts == ["one", "zwei\ud800"]
    assert skips.counts.total() == 6
    assert skips.counts["not JSON"] == 2
    assert skips.counts["no field 'text' (keys: body)"] == 1
    assert skips.examples[0] == "a.jsonl:3: not JSON"


def test_another_field_can_be_named(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"body": "x"}\n')
    assert read(file, field="body")[0] == ["x"]


def test_a_line_without_end_is_read_over_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "LONGEST_LINE_BYTES", 64)
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({"text": "x" * 1000}) + "\n" + json.dumps({"text": "short"}) + "\n")
    texts, skips = read(file)
    assert texts == ["short"]
    assert skips.counts.total() == 1


def test_sample_bytes_end_the_reading(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"text": "x" * 100}) + "\n" for _ in range(50)))
    assert len(read(file, sample_bytes=450)[0]) == 5


def test_files_come_in_a_fixed_order_that_is_not_the_names(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number:02}.txt").write_text(str(number))
    files = sorted(tmp_path.iterdir())
    orders = [
        list(Corpus(files, asked_format="auto", text_field="text", sample_bytes=10**6).documents()) for _ in range(2)
    ]
    assert orders[0] == orders[1] != sorted(orders[0], key=int)


def test_parquet_rows_columns_and_files_that_are_none(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    file = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["one", None, "", "two"], "n": [1, 2, 3, 4]}), file, row_group_size=2)
    texts, skips = read(file)
    assert texts == ["one", "two"]
    assert skips.counts == {"field 'text' is not text": 1, "empty": 1}
    with pytest.raises(ObjectiveError, match="no column 'body', only text, n"):
        read(file, field="body")
    (tmp_path / "b.parquet").write_bytes(b"not parquet at all")
    assert read(tmp_path / "b.parquet")[1].counts.total() == 1
