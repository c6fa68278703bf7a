"""A folder for one run's own files. Those of runs that were killed are removed by the next one."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "tightfit-script-"
YOUNG_SECONDS = 60.0
"""A folder so young may not be locked yet by the run that has just made it."""


@contextmanager
def run_folder(parent: Path | None = None) -> Iterator[Path]:
    """A new folder, readable by this user only, gone afterwards. As long as it is in use its process holds its lock.

    Args:
        parent: Where; None for the system's folder for temporary files.
    """
    place = parent if parent is not None else Path(tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    held = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        _remove_stale(place, but=folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def _remove_stale(place: Path, *, but: Path) -> None:
    """Removes this user's folders that no process holds."""
    for folder in place.glob(f"{PREFIX}*"):
        with suppress(OSError):
            seen = folder.stat()
            old = time.time() - seen.st_mtime > YOUNG_SECONDS
            if folder != but and seen.st_uid == os.getuid() and old:
                _remove_unheld(folder)


def _remove_unheld(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)
