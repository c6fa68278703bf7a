"""Our packages win over a user's ``ui.py``, ``storage/`` or ``tests/`` that stands in the working folder.

Imports nothing but the standard library's core: it runs before everything else.
"""

from __future__ import annotations

import importlib
import os
import sys

OWN = ("objectives", "storage", "tuner")


def keep_own_packages_first() -> None:
    """Takes our packages from where this one is, then moves the working folder to the end of the search path.

    A package that is imported once keeps its place, so a folder of the same name, with or without ``__init__.py``,
    cannot come before it however the tuner was installed. The user's own modules stay importable.
    """
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
    working = [entry for entry in sys.path if _is_working_folder(entry)]
    rest = [entry for entry in sys.path if not _is_working_folder(entry)]
    sys.path[:] = [home, *rest]
    for name in OWN:
        importlib.import_module(name)
    sys.path[:] = [*rest, *(entry for entry in working[:1])]


def _is_working_folder(entry: str) -> bool:
    return os.path.realpath(entry or os.curdir) == os.path.realpath(os.curdir)
