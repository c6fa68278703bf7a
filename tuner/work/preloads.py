"""Whether the libraries that a spec preloads into every run are there: the dynamic linker ignores a missing one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping

from tuner.errors import SpecError, SpecProblem

VARIABLE = "LD_PRELOAD"
SECONDS = 10.0
_REFUSED = re.compile(r"object '(?P<name>[^']*)' from LD_PRELOAD cannot be preloaded \((?P<reason>[^)]*)\)")


def require_preloads(environment: Mapping[str, str]) -> None:
    """Refuses an ``LD_PRELOAD`` that the dynamic linker would leave out, by asking it with a process that does nothing.

    Args:
        environment: The spec's variables.

    Raises:
        SpecError: A library is missing, unreadable or of another kind of machine; the linker's own reason is in it.
    """
    wanted, nothing = environment.get(VARIABLE), shutil.which("true")
    if not wanted or nothing is None:
        return
    said = subprocess.run(
        [nothing], env={**os.environ, VARIABLE: wanted}, stderr=subprocess.PIPE, text=True, timeout=SECONDS, check=False
    ).stderr
    problems = [
        SpecProblem(
            where=f"environment.{VARIABLE}",
            reason=f"{found['name']!r} cannot be preloaded: {found['reason']}",
            fix="Give the library's whole path on this machine, or remove it",
        )
        for found in _REFUSED.finditer(said)
    ]
    if problems:
        raise SpecError(tuple(dict.fromkeys(problems)), source="")
