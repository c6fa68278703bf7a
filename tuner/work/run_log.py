"""A run's output on disk: bounded while it grows, readable afterwards whatever bytes it holds."""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path

from objectives.trial.protocol import clean

KEPT_BYTES = 64 * 1024
"""Kept of the start and of the end of the output."""
LARGEST_BYTES = 16 * 1024 * 1024
"""A log that has grown beyond this loses its middle."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_UNPRINTABLE = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")


class RunLog:
    """The file a child's standard output and error go to. Opened for appending, so it may be cut at any time.

    It is locked as long as anybody has it open, the child and what that has started included.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with suppress(BlockingIOError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def fileno(self) -> int:
        """The descriptor the child inherits."""
        return self._descriptor

    def bound(self) -> None:
        """Takes the middle out of a log that has grown too large. Output written during the cut may be lost with it."""
        size = os.fstat(self._descriptor).st_size
        if size <= LARGEST_BYTES:
            return
        tail = os.pread(self._descriptor, KEPT_BYTES, size - KEPT_BYTES)
        os.ftruncate(self._descriptor, KEPT_BYTES)
        os.write(self._descriptor, b"\n[... %d bytes of output left out ...]\n" % (size - 2 * KEPT_BYTES) + tail)

    def head_and_tail(self) -> tuple[str, str]:
        """The start and the end of the output as text; the start is empty when the end is all there is."""
        size = os.fstat(self._descriptor).st_size
        tail = os.pread(self._descriptor, KEPT_BYTES, max(0, size - KEPT_BYTES))
        head = os.pread(self._descriptor, min(KEPT_BYTES, size - KEPT_BYTES), 0) if size > KEPT_BYTES else b""
        return readable(head), readable(tail)

    def close(self) -> None:
        """Closes the file; it stays on disk."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def remove_stale_logs(folder: Path) -> int:
    """Removes the logs of runs whose worker was killed: those that nobody has open. Returns how many."""
    removed = 0
    for path in folder.glob("*.log"):
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                removed += 1
            finally:
                os.close(descriptor)
    return removed


def readable(output: bytes) -> str:
    """What was written for a terminal as plain text: no escapes, no NUL, each state of a progress bar on a line."""
    text = _ESCAPES.sub("", output.decode("utf-8", "replace"))
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return str(clean(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)))
