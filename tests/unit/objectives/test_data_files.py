"""Which files a path means, and when their fingerprint changes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from objectives.contract import ObjectiveError
from objectives.data.files import find_files, fingerprint, format_of, one_kind


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.jsonl", "deep/c.txt", ".hidden", "tokens.bin"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("text")
    return tmp_path


def names(files: list[Path]) -> list[str]:
    return [file.name for file in files]


def test_pattern_folder_file_and_list_each_once_and_sorted(corpus: Path) -> None:
    assert names(find_files("*.txt", corpus)) == ["b.txt"]
    assert names(find_files("**/*.txt", corpus)) == ["b.txt", "c.txt"]
    assert names(find_files(str(corpus / "deep"), Path("/"))) == ["c.txt"]
    assert names(find_files(["b.txt", "*.txt", "deep"], corpus)) == ["b.txt", "c.txt"]
    assert ".hidden" not in names(find_files(".", corpus))


def test_nothing_found_says_where_it_was_looked_for(corpus: Path) -> None:
    with pytest.raises(ObjectiveError, match=r"'\*.csv' means no file .*start at .*stdlib"):
        find_files("*.csv", corpus)


def test_stdlib_is_there_on_every_machine_without_tests_and_packages() -> None:
    files = find_files("stdlib", Path("/nowhere"))
    assert len(files) > 200
    assert "argparse.py" in names(files)
    assert not any({"site-packages", "test", "tests"} & set(file.parts) for file in files)


def test_formats_by_ending_unless_asked(corpus: Path) -> None:
    assert [format_of(Path(name), "auto") for name in ("a.JSONL", "b.pq", "c.npy", "d.py")] == [
        "jsonl", "parquet", "tokens", "text",
    ]  # fmt: skip
    assert format_of(Path("a.jsonl"), "text") == "text"
    with pytest.raises(ObjectiveError, match=r"tokens.bin holds tokens and a.jsonl holds text"):
        one_kind(find_files("*.*", corpus), "auto")


def test_fingerprint_follows_content_not_times(corpus: Path) -> None:
    files = find_files("**/*.txt", corpus)
    before = fingerprint(files, "x")
    os.utime(files[0], (1, 1))
    assert fingerprint(files, "x") == before
    assert fingerprint(files, "y") != before
    files[0].write_text("Text")
    assert fingerprint(files, "x") != before


def test_large_files_change_their_fingerprint_at_both_ends_and_with_their_time(tmp_path: Path) -> None:
    file = tmp_path / "large.txt"
    file.write_bytes(b"a" * 9_000_000)
    seen = {fingerprint([file])}
    for offset in (0, 8_999_999):
        with file.open("r+b") as target:
            target.seek(offset)
            target.write(b"b")
        os.utime(file, (1, 1))
        seen.add(fingerprint([file]))
    os.utime(file, (2, 2))
    assert len(seen | {fingerprint([file])}) == 4


def test_a_file_that_cannot_be_read_has_a_fingerprint_all_the_same(tmp_path: Path) -> None:
    assert fingerprint([tmp_path / "gone"]) == fingerprint([tmp_path / "gone"])
