"""What preparation leaves under the cache: a folder per content fingerprint, and a file of facts that names it.

Folders appear whole or not at all (written aside, then renamed), so two workers may prepare the same study at once. A
changed corpus has another fingerprint and gets another folder; running trials keep the one they began with.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from objectives.contract import ObjectiveError

FACTS_FILE = "facts.json"


def settings_key(kind: str, *parts: Any) -> str:
    """A name for the facts of these settings: the same settings find them again."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return f"{kind}-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def once(folder: Path, make: Callable[[Path], Mapping[str, Any]]) -> dict[str, Any]:
    """Fills ``folder`` by ``make`` unless it is there already. Returns its facts.

    Args:
        folder: Where the result belongs.
        make: Writes into the folder it is given and returns JSON facts about it.
    """
    if not (folder / FACTS_FILE).is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            write_json(aside / FACTS_FILE, make(aside))
            _move_into_place(aside, folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return read_json(folder / FACTS_FILE)


def _move_into_place(aside: Path, folder: Path) -> None:
    try:
        aside.rename(folder)
    except OSError:
        if not (folder / FACTS_FILE).is_file():  # not somebody else's finished work: a remnant
            shutil.rmtree(folder, ignore_errors=True)
            aside.rename(folder)


def write_json(file: Path, values: Mapping[str, Any]) -> None:
    """Writes the file whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as target:
        json.dump(values, target, allow_nan=False)
    Path(name).replace(file)


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file of ours."""
    values: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return values


def read_facts(cache: str | Path, key: str) -> dict[str, Any] | None:
    """The facts of these settings; None before :meth:`prepare` has run on this cache."""
    file = Path(cache) / f"{key}.json"
    return read_json(file) if str(cache) and file.is_file() else None


def need_facts(cache: str | Path, key: str) -> dict[str, Any]:
    """The facts of these settings.

    Raises:
        ObjectiveError: Nothing was prepared there.
    """
    facts = read_facts(cache, key)
    if facts is None:
        raise ObjectiveError(
            f"nothing is prepared for this objective under {str(cache) or 'an unset cache'!r}: call prepare(cache) "
            "once, in a process of its own"
        )
    return facts
