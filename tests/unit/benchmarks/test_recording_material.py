"""Data made for the grids: the same every time, and made again when it was not finished."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.recording import material


def draw(folder: Path) -> dict[str, bytes]:
    material.pictures(folder, side=32, per_class=2, classes=2)
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*.jpg"))}


def test_pictures_are_the_same_every_time(tmp_path: Path) -> None:
    first, second = draw(tmp_path / "a"), draw(tmp_path / "b")
    assert first == second
    assert list(first) == ["class-0/0000.jpg", "class-0/0001.jpg", "class-1/0000.jpg", "class-1/0001.jpg"]
    with Image.open(tmp_path / "a" / "class-0" / "0000.jpg") as picture:
        assert min(picture.size) >= 32


def test_docstrings_of_a_file_that_is_no_python_are_none(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(f'"""{"Long enough to be worth a line. " * 2}"""\n\ndef f():\n    """Short."""\n')
    bad.write_text("def (:")
    assert [len(text) for text in material._docstrings_of(good)] == [64]
    assert list(material._docstrings_of(bad)) == []


def test_unfinished_material_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(material, "MATERIAL", {"one": made.append, "two": partial(made.append)})
    (tmp_path / "one").mkdir()
    assert material.make("one", tmp_path) == tmp_path / "one"
    assert material.make("one", tmp_path) == tmp_path / "one"
    assert made == [tmp_path / "one"]
    with pytest.raises(LookupError, match="there is one, two"):
        material.make("three", tmp_path)
