"""Pictures in class folders, as people have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from objectives.contract import ObjectiveError
from objectives.data.images import (
    DEVIATION,
    MEAN,
    NO_PICTURE,
    Pictures,
    class_folders,
    decode,
    find_pictures,
    folders_without_picture,
    write_pictures,
)


def picture(file: Path, colour: tuple[int, int, int] = (255, 0, 0), size: tuple[int, int] = (40, 30)) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(file)
    return file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for label, name in enumerate(("ants", "bees")):
        for index in range(4):
            picture(tmp_path / "all" / name / f"{index}.png", (50 * index, 100 * label, 0))
    picture(tmp_path / "all" / "bees" / "deep" / "x.JPG")
    return tmp_path / "all"


def test_classes_are_the_folders_and_the_order_is_fixed(root: Path) -> None:
    classes = class_folders(root)
    assert [place.name for place in classes] == ["ants", "bees"]
    found = find_pictures(classes)
    assert found == find_pictures(classes)
    assert sorted(label for _, label in found) == [0] * 4 + [1] * 5
    assert [file for file, _ in found] != sorted(file for file, _ in found)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_classes_are_refused(tmp_path: Path, count: int) -> None:
    for index in range(3):
        (tmp_path / f"c{index}").mkdir()
    for index in range(count):
        Image.new("RGB", (8, 8)).save(tmp_path / f"c{index}" / "one.png")
    with pytest.raises(ObjectiveError, match=f"has {count} class folders.*Without a picture: .*c2"):
        class_folders(tmp_path)
    with pytest.raises(ObjectiveError, match="no folder"):
        class_folders(tmp_path / "none")


def test_index_skips_what_is_no_picture_and_counts_it(root: Path, tmp_path: Path) -> None:
    (root / "ants" / "bad.jpg").write_bytes(b"not a picture")
    (root / "ants" / "empty.png").write_bytes(b"")
    (root / "ants" / "notes.txt").write_text("not looked at")
    found = find_pictures(class_folders(root))
    facts = write_pictures(tmp_path, found, sample_files=100)
    assert facts["rows"] == 9
    assert facts["skipped"]["counts"] == {"not a usable picture (UnidentifiedImageError)": 2}
    rows = Pictures(tmp_path, image_size=8)
    kept = [(file, label) for file, label in found if file.stat().st_size > 20]
    assert [rows[i][1] for i in range(len(rows))] == [label for _, label in kept]
    assert np.array_equal(rows[0][0], decode(kept[0][0], 8))


def test_a_class_without_a_usable_picture_is_no_class_and_is_told(root: Path, tmp_path: Path) -> None:
    (root / "aaa empty").mkdir()
    (root / "mm notes").mkdir()
    (root / "mm notes" / "read.me").write_text("no picture")
    (root / "bb broken").mkdir()
    (root / "bb broken" / "x.png").write_bytes(b"not a picture")
    classes = class_folders(root)
    assert [place.name for place in classes] == ["ants", "bb broken", "bees"]
    without = folders_without_picture(root, classes)
    facts = write_pictures(tmp_path, find_pictures(classes), sample_files=100, without=without)
    assert facts["classes"] == 2
    assert facts["skipped"]["counts"][NO_PICTURE] == 3
    assert {row[1] for row in Pictures(tmp_path, image_size=8)} == {0, 1}


def test_a_small_sample_takes_no_class_away(root: Path, tmp_path: Path) -> None:
    assert write_pictures(tmp_path, find_pictures(class_folders(root)), sample_files=1)["classes"] == 2


def test_no_usable_picture_is_an_error_and_the_sample_is_capped(root: Path, tmp_path: Path) -> None:
    assert write_pictures(tmp_path, find_pictures(class_folders(root)), sample_files=3)["rows"] == 3
    (tmp_path / "x.png").write_bytes(b"")
    with pytest.raises(ObjectiveError, match=r"no picture .*x\.png: not a usable picture"):
        write_pictures(tmp_path, [(tmp_path / "x.png", 0)], sample_files=3)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK", "1", "I;16"])
def test_every_kind_of_picture_becomes_normalised_rgb(tmp_path: Path, mode: str) -> None:
    file = tmp_path / ("x.jpg" if mode == "CMYK" else "x.png")
    Image.new(mode, (33, 21)).save(file)
    pixels = decode(file, 16)
    assert pixels.shape == (3, 16, 16)
    assert pixels.dtype == np.float32
    assert pixels.flags["C_CONTIGUOUS"]


def test_values_are_normalised_per_channel(tmp_path: Path) -> None:
    pixels = decode(picture(tmp_path / "x.png", (255, 0, 51)), 4)
    expected = (np.array([1.0, 0.0, 0.2], dtype=np.float32) - MEAN) / DEVIATION
    assert np.allclose(pixels, expected[:, None, None], atol=1e-6)


def test_a_truncated_picture_is_filled_and_a_missing_one_named(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0)
    file = tmp_path / "x.jpg"
    Image.fromarray(numbers.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(file)
    file.write_bytes(file.read_bytes()[:-800])
    assert decode(file, 16).shape == (3, 16, 16)
    file.unlink()
    with pytest.raises(ObjectiveError, match=r"x\.jpg cannot be decoded"):
        decode(file, 16)
