"""What a host has prepared of a study: caches are local, so each host that joins prepares its own, once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.errors import TightfitError

if TYPE_CHECKING:
    from objectives.contract import ObjectiveReference

ALIKE = ("rows", "mean_tokens_per_row")
"""What two hosts' preparations of one study's data must agree in."""


def read_mark(objective: ObjectiveReference) -> Mapping[str, Any] | None:
    """What this host's preparation returned; None when it has not prepared this objective."""
    try:
        found = json.loads(_mark(objective).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_mark(objective: ObjectiveReference, data: Mapping[str, Any]) -> None:
    """Remembers that this host has prepared it."""
    path = _mark(objective)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(dict(data)), encoding="utf-8")
    aside.rename(path)


def require_alike(here: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
    """Refuses a host whose data is not what the study's measurements are from.

    Raises:
        TightfitError: With what differs.
    """
    for name in ALIKE:
        if name in here and name in stored and here[name] != stored[name]:
            raise TightfitError(
                f"the data on this machine is not the study's: {name} is {here[name]} here and {stored[name]} there. "
                "Give every machine the same data"
            )


def _mark(objective: ObjectiveReference) -> Path:
    said = json.dumps([objective.kind, dict(objective.settings), objective.folder], sort_keys=True)
    return objective.cache_path / "prepared" / f"{hashlib.sha256(said.encode()).hexdigest()[:24]}.json"
