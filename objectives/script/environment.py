"""The environment a script starts with: the worker's own, the watch on its path, our packages off it. Pure."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

INSIDE = Path(__file__).with_name("inside")
ROOT = Path(__file__).parents[2]
"""Where our packages lie: in a bare checkout the worker's children find them through PYTHONPATH."""
WATCH_VARIABLE = "TIGHTFIT_WATCH"
OWN_VARIABLE = "TIGHTFIT_OWN"
"""The worker's own values (null: none) of the variables that every template starts with instead, as JSON."""


def script_environment(own: Mapping[str, str], wish: Mapping[str, Any], extra: Mapping[str, str]) -> dict[str, str]:
    """All variables of the script's process.

    ``python``, ``torchrun`` and ``accelerate`` are first looked for where the tuner's own interpreter is, so that a
    virtual environment need not be active.

    Args:
        own: The leader's.
        wish: What the watch is to do.
        extra: The template's.
    """
    path = [str(INSIDE), *_entries(own.get("PYTHONPATH", ""))]
    programs = [str(Path(sys.executable).parent), *filter(None, own.get("PATH", os.defpath).split(os.pathsep))]
    ours = {
        "PYTHONPATH": os.pathsep.join(path),
        "PATH": os.pathsep.join(dict.fromkeys(programs)),
        WATCH_VARIABLE: json.dumps(dict(wish)),
    }
    return {**_as_the_worker(own), **extra, **ours}


def _as_the_worker(own: Mapping[str, str]) -> dict[str, str]:
    """A script is launched as its user would: not with the threads and waits that suit our own children."""
    before: dict[str, str | None] = json.loads(own.get(OWN_VARIABLE, "{}"))
    kept = {name: value for name, value in own.items() if name not in before and name != OWN_VARIABLE}
    return kept | {name: value for name, value in before.items() if value is not None}


def _entries(path: str) -> list[str]:
    return [entry for entry in path.split(os.pathsep) if entry and Path(entry).absolute() != ROOT]
