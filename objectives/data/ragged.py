"""Rows of unequal length in one memory-mapped file: what preparation leaves and every trial reads.

A file of values (its dtype in its name) and a file of offsets: no Python object per row, so forked loader workers share
the pages instead of copying them (case E03), and opening costs nothing however large the data is.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Ragged:
    """Row ``i`` is ``values[offsets[i]:offsets[i + 1]]``.

    Opens what :func:`write_ragged` wrote: values are one-dimensional, offsets one more than there are rows, from 0.
    Goes to another process as its place on disk, not as its content.

    Raises:
        FileNotFoundError: It is not there.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._place = (folder, name)
        files = sorted(folder.glob(f"{name}.*.bin"))
        if not files:
            raise FileNotFoundError(f"no {name!r} in {folder}")
        dtype = np.dtype(files[0].name.split(".")[-2])
        self._offsets: npt.NDArray[np.int64] = np.load(folder / f"{name}.offsets.npy", mmap_mode="r")
        empty = files[0].stat().st_size == 0  # an empty file cannot be mapped
        self._values: Array = np.empty(0, dtype) if empty else np.memmap(files[0], dtype=dtype, mode="r")

    def __reduce__(self) -> tuple[type[Ragged], tuple[Path, str]]:
        return Ragged, self._place

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, row: int) -> Array:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        row %= len(self)
        return self._values[self._offsets[row] : self._offsets[row + 1]]

    def lengths(self) -> npt.NDArray[np.int64]:
        """Values per row, shape (rows,)."""
        return np.diff(self._offsets)


def write_ragged(folder: Path, name: str, rows: Iterable[Array | bytes], dtype: npt.DTypeLike) -> int:
    """Writes rows one after another, holding only their lengths in memory. Returns their number."""
    kind = np.dtype(dtype)
    offsets = [0]
    with (folder / f"{name}.{kind.name}.bin").open("wb") as file:
        for row in rows:
            data = row if isinstance(row, bytes) else np.asarray(row, dtype=kind).tobytes()
            file.write(data)
            offsets.append(offsets[-1] + len(data) // kind.itemsize)
    np.save(folder / f"{name}.offsets.npy", np.array(offsets, dtype=np.int64))
    return len(offsets) - 1
