"""Pictures in class folders: indexed once, decoded in the loader by Pillow, made into normalised tensors by numpy."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from objectives.contract import ObjectiveError
from objectives.data.documents import Skips
from objectives.data.ragged import Ragged, write_ragged

ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm"})
MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
DEVIATION = np.array([0.229, 0.224, 0.225], dtype=np.float32)
"""Per channel, of values from 0 to 1: ImageNet's, which transformers' own processors use."""
NO_PICTURE = "no usable picture in a class folder: not a class"
FILES, LABELS = "files", "labels.npy"


def class_folders(root: Path) -> list[Path]:
    """The folders right under ``root`` that hold a picture, sorted by name: label ``i`` is the ``i``-th.

    Raises:
        ObjectiveError: There is no such folder, or fewer than two classes.
    """
    if not root.is_dir():
        raise ObjectiveError(f"objective.data.path: no folder {root}")
    classes = [place for place in _folders(root) if next(_picture_files(place), None) is not None]
    if len(classes) < 2:
        raise ObjectiveError(
            f"objective.data.path: {root} has {len(classes)} class folders with pictures; at least two are needed"
            f"{_named(folders_without_picture(root, classes))}"
        )
    return classes


def folders_without_picture(root: Path, classes: Sequence[Path]) -> list[Path]:
    """The folders right under ``root`` that are no class."""
    return [place for place in _folders(root) if place not in set(classes)]


def _folders(root: Path) -> list[Path]:
    return sorted(place for place in root.iterdir() if place.is_dir() and not place.name.startswith("."))


def _named(without: Sequence[Path]) -> str:
    names = ", ".join(place.name for place in without[:5])
    return f". Without a picture: {names}. Known endings: {', '.join(sorted(ENDINGS))}" if names else ""


def _picture_files(place: Path) -> Iterator[Path]:
    return (file for file in place.rglob("*") if file.suffix.lower() in ENDINGS and file.is_file())


def find_pictures(classes: Sequence[Path]) -> list[tuple[Path, int]]:
    """Every picture file with its label, in the study's fixed order (shuffled from seed 0)."""
    found = [(file, label) for label, place in enumerate(classes) for file in sorted(_picture_files(place))]
    return [found[index] for index in np.random.default_rng(0).permutation(len(found))]


def write_pictures(
    folder: Path, pictures: Sequence[tuple[Path, int]], sample_files: int, without: Sequence[Path] = ()
) -> dict[str, Any]:
    """Writes the index of the readable ones. Returns facts about them.

    A class none of whose pictures can be read is no class: the labels above it move down by one.

    Args:
        folder: Where to.
        pictures: Every file with its label.
        sample_files: So many are taken at most.
        without: Class folders without a picture, to be counted as left out.

    Raises:
        ObjectiveError: None can be read, or those of one class alone.
    """
    skips = Skips()
    kept, unread = _readable(pictures, sample_files, skips)
    files = Counter(label for _, label in pictures)
    classes = [label for label in sorted(files) if unread[label] < files[label]]
    if not kept or len(classes) < 2:
        which = "these" if not kept else "all but one of these"
        raise ObjectiveError(
            f"objective.data: no picture in {which} class folders can be read ({skips}). Known endings: "
            f"{', '.join(sorted(ENDINGS))}"
        )
    write_ragged(folder, FILES, (os.fsencode(file) for file, _ in kept), np.uint8)
    np.save(folder / LABELS, np.searchsorted(classes, np.array([label for _, label in kept], dtype=np.int64)))
    broken = [next(file.parent for file, label in pictures if label == each) for each in files if each not in classes]
    for place in (*without, *broken):
        skips.add(NO_PICTURE, place.name)
    return {"rows": len(kept), "classes": len(classes), "skipped": skips.to_mapping(), "mean_tokens_per_row": {}}


def _readable(
    pictures: Sequence[tuple[Path, int]], sample_files: int, skips: Skips
) -> tuple[list[tuple[Path, int]], Counter[int]]:
    """The first readable ones, and how many of each label were not."""
    kept: list[tuple[Path, int]] = []
    unread: Counter[int] = Counter()
    for file, label in pictures:
        if len(kept) >= sample_files:
            break
        if reason := _unreadable(file):
            skips.add(reason, file.name)
            unread[label] += 1
        else:
            kept.append((file, label))
    return kept, unread


def _unreadable(file: Path) -> str | None:
    """Why the picture's header cannot be read; its pixels are decoded in the loader only."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file) as picture:
                picture.verify()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        return f"not a usable picture ({type(error).__name__})"
    return None


class Pictures:
    """Samples are ``(pixels, label)``: float32 of shape (3, size, size), normalised, and an int. Decoded when asked."""

    def __init__(self, folder: Path, image_size: int) -> None:
        self._files = Ragged(folder, FILES)
        self._labels: npt.NDArray[np.int64] = np.load(folder / LABELS, mmap_mode="r")
        self._size = image_size

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, row: int) -> tuple[npt.NDArray[np.float32], int]:
        file = Path(os.fsdecode(self._files[row].tobytes()))
        return decode(file, self._size), int(self._labels[row])


def decode(file: Path, size: int) -> npt.NDArray[np.float32]:
    """One picture as RGB: shorter side resized, centre cropped, normalised; shape (3, size, size).

    A file that is cut short is filled with grey instead of ending the run.

    Raises:
        ObjectiveError: The file is gone, or no longer a picture.
    """
    from PIL import Image, ImageFile, ImageOps

    ImageFile.LOAD_TRUNCATED_IMAGES = True
    try:
        with Image.open(file) as picture:
            picture.draft("RGB", (size, size))  # JPEG decodes at a fraction of its size where that is enough
            fitted = ImageOps.fit(picture.convert("RGB"), (size, size), Image.Resampling.BILINEAR)
    except (OSError, SyntaxError, ValueError) as error:
        raise ObjectiveError(f"objective.data: {file} cannot be decoded: {error}. Remove it and run again") from error
    pixels = (np.asarray(fitted, dtype=np.float32) / 255 - MEAN) / DEVIATION
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def collate_pictures(samples: Sequence[tuple[npt.NDArray[np.float32], int]]) -> dict[str, Any]:
    """A micro-batch: ``pixel_values`` of shape (samples, 3, size, size) and ``labels`` of shape (samples,)."""
    import torch

    pixels = np.stack([pixels for pixels, _ in samples])
    labels = np.array([label for _, label in samples], dtype=np.int64)
    return {"pixel_values": torch.from_numpy(pixels), "labels": torch.from_numpy(labels)}
