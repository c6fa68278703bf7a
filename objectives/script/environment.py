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
    return {**own, **extra, **ours}


def _entries(path: str) -> list[str]:
    return [entry for entry in path.split(os.pathsep) if entry and Path(entry).absolute() != ROOT]
