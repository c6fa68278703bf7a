"""What a script's template would execute: for whoever must allow it first. Pure; nothing is looked up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from objectives.script import grammar
from objectives.script.launchers import INTERPRETERS, LAUNCHERS


@dataclass(frozen=True, kw_only=True)
class Executed:
    """What a command runs.

    Attributes:
        program: Its first word as written.
        script: Absolute path of the Python file it runs; None where it names none (a module, or a program of its own).
        module: The module behind ``-m``; None without one.
        fixed: Whether program and script are plain words: no placeholder can change what is run.
    """

    program: str
    script: str | None = None
    module: str | None = None
    fixed: bool = True


def executed(command: Sequence[str], folder: str) -> Executed:
    """What a command would run, its interpreter's and launcher's options skipped.

    Args:
        command: The template's command.
        folder: Where its relative paths start.
    """
    words = list(command)
    program = words[0]
    module = _module(words)
    at = next((at for at, word in enumerate(words) if word.endswith(".py")), None)
    named = words[at] if at is not None and (module is None or _is_launcher(module)) else None
    script = None if named is None else str(Path(folder, named))
    decisive = [program, *([named] if named else []), *([module] if module else [])]
    return Executed(
        program=program,
        script=script,
        module=module if script is None or (module is not None and not _is_launcher(module)) else None,
        fixed=not any(grammar.names(word) for word in decisive),
    )


def _module(words: Sequence[str]) -> str | None:
    """The module behind an interpreter's ``-m``."""
    if not PurePath(words[0]).name.startswith(INTERPRETERS) or "-m" not in words:
        return None
    at = words.index("-m")
    return words[at + 1] if at + 1 < len(words) else None


def _is_launcher(module: str) -> bool:
    return any(launcher.words[0] == module for launcher in LAUNCHERS)
