"""The report on disk: written aside, then renamed into place; what is no report of ours is never written over."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tuner.errors import TightfitError
from tuner.report.page import GENERATOR

HEAD_BYTES = 400
"""The generator's name stands within so many bytes of the start."""


def default_path(study: str) -> Path:
    """``STUDY.html`` in this folder; what a file name cannot hold becomes a dash."""
    return Path(f"{re.sub(r'[^A-Za-z0-9._-]+', '-', study).strip('.-') or 'study'}.html")


def write(text: str, path: Path) -> Path:
    """Writes the page; returns where it is.

    Raises:
        TightfitError: Something else is there, or the folder cannot be written; the message says what would help.
    """
    try:
        if path.is_dir() or (path.exists() and not _is_ours(path)):
            raise TightfitError(f"{path} is there and is no report: give another file with --output")
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        raise TightfitError(
            f"the report cannot be written to {path} ({error}): give another file with --output"
        ) from error
    return path.absolute()


def _is_ours(path: Path) -> bool:
    head = path.read_bytes()[:HEAD_BYTES]
    return f'name="generator" content="{GENERATOR}"'.encode() in head or not head
