"""The rim: a user's file is read, the exported ones are written; and the document of ``tuner export``."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.export.handover import Export, ExportRefused


def read_config(path: Path) -> dict[str, Any]:
    """A user's JSON or YAML file as plain data. Tags, anchors and duplicate keys are refused.

    Raises:
        ExportRefused: It cannot be read, or holds no keys.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        text = path.read_text(encoding="utf-8")
        loader = YAML(typ="safe", pure=True)
        values = json.loads(text) if path.suffix == ".json" else loader.load(text)
    except OSError as error:
        raise ExportRefused(f"--diff {path}: {error.strerror or 'cannot be read'}") from error
    except (ValueError, YAMLError) as error:
        raise ExportRefused(f"--diff {path}: {' '.join(str(error).split())[:300]}") from error
    if not isinstance(values, dict):
        raise ExportRefused(f"--diff {path}: there are no keys in it")
    return {str(key): value for key, value in values.items()}


def write_files(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Writes all files or none; a file with other content is never overwritten.

    Returns:
        Their paths.

    Raises:
        ExportRefused: One exists and says something else, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            if (folder / name).exists() and (folder / name).read_text(encoding="utf-8", errors="replace") != text:
                raise ExportRefused(f"{folder / name} exists and says something else: name another --output folder")
        for name, text in files.items():
            _replace(folder / name, text)
    except OSError as error:
        raise ExportRefused(f"--output {folder}: {error.strerror or error}") from error
    return [str(folder / name) for name in files]


def _replace(path: Path, text: str) -> None:
    """Written aside, then renamed into place; scripts can be started."""
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(aside).chmod(0o755 if path.suffix == ".sh" else 0o644)
    Path(aside).replace(path)


def document(made: Export, *, study: str, trial: int | None, name: str, target: str) -> dict[str, Any]:
    """The JSON of ``tuner export``; ``written`` and ``diff`` are filled by the caller."""
    return {
        "study": study,
        "trial": trial,
        "format": name,
        "target": target,
        "files": dict(made.files),
        "carried": dict(made.carried),
        "not_carried": [
            {"knob": each.knob, "value": each.value, "reason": each.why, "code": list(each.code)}
            for each in made.not_carried
        ],
        "environment": dict(made.environment),
        "notes": list(made.notes),
        "written": [],
        "diff": None,
    }
