"""How many ranks a command starts, read from the words of the launchers that people use. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

INTERPRETERS = ("python", "python3")


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """A program that starts ranks.

    Attributes:
        words: How a command that uses it begins, behind the interpreter and its ``-m`` if there is one.
        ranks: Options that say the ranks per machine.
        machines: Options that say the machines: 1 is all there may be.
        without: Ranks when no option says it; None: then it is not known.
    """

    words: tuple[str, ...]
    ranks: tuple[str, ...]
    machines: tuple[str, ...]
    without: int | None


_TORCHRUN = {"ranks": ("--nproc-per-node", "--nproc_per_node"), "machines": ("--nnodes",), "without": 1}
_ACCELERATE = {
    "ranks": ("--num_processes", "--num-processes"),
    "machines": ("--num_machines", "--num-machines"),
    "without": None,
}
LAUNCHERS: tuple[Launcher, ...] = (
    Launcher(words=("torchrun",), **_TORCHRUN),  # type: ignore[arg-type]
    Launcher(words=("torch.distributed.run",), **_TORCHRUN),  # type: ignore[arg-type]
    Launcher(words=("torch.distributed.launch",), **_TORCHRUN),  # type: ignore[arg-type]
    Launcher(words=("accelerate", "launch"), **_ACCELERATE),  # type: ignore[arg-type]
    Launcher(words=("accelerate.commands.launch",), **_ACCELERATE),  # type: ignore[arg-type]
    Launcher(words=("accelerate-launch",), **_ACCELERATE),  # type: ignore[arg-type]
)


class RanksError(ValueError):
    """The number of ranks cannot be known. ``fix`` says what to write."""

    def __init__(self, reason: str, fix: str) -> None:
        self.reason, self.fix = reason, fix
        super().__init__(f"{reason}. {fix}")


def ranks_of(settings: Mapping[str, Any]) -> int:
    """Data-parallel ranks of a script's settings: what its launcher says, or its key ``ranks``, else 1.

    Raises:
        RanksError: They contradict each other, cannot be known, or are on several machines.
    """
    said, given = _said(tuple(map(str, settings.get("command", ())))), settings.get("ranks")
    if isinstance(given, int) and isinstance(said, int) and given != said:
        raise RanksError(f"'ranks' is {given}, and the launcher starts {said}", "Keep one of the two")
    if given is not None:
        return int(given)
    if isinstance(said, Launcher):
        raise RanksError(
            f"nothing says how many ranks {' '.join(said.words)!r} starts", f"Write {said.ranks[0]} and a number"
        )
    return said if said is not None else 1


def _said(command: Sequence[str]) -> int | Launcher | None:
    """What the launcher's own words say: a number, that they say nothing (the launcher), or that there is none."""
    for launcher in LAUNCHERS:
        options = _options_of(launcher, command)
        if options is not None:
            machines = _number(options, launcher.machines)
            if machines not in (None, 1):
                raise RanksError(f"{machines} machines are asked for", "A trial runs on one; write 1")
            found = _number(options, launcher.ranks)
            if "--cpu" in options and (found or 1) > 1:
                raise RanksError(
                    f"accelerate launch --cpu starts one process, not {found}",
                    "Write --multi_gpu in its place; the script's own Accelerator(cpu=True) keeps it on the CPU",
                )
            return found if found is not None else launcher.without if launcher.without is not None else launcher
    return None


def _options_of(launcher: Launcher, command: Sequence[str]) -> Sequence[str] | None:
    """The launcher's own options: up to the script (``*.py``) or module it starts. None when it is not used."""
    words = list(command)
    if words and PurePath(words[0]).name.startswith(INTERPRETERS):
        words = words[words.index("-m") + 1 :] if "-m" in words else []
    elif words:
        words[0] = PurePath(words[0]).name
    if tuple(words[: len(launcher.words)]) != launcher.words:
        return None
    rest = words[len(launcher.words) :]
    end = next((at for at, word in enumerate(rest) if word.endswith(".py") or word in ("-m", "--module")), len(rest))
    return rest[:end]


def _number(options: Sequence[str], names: Sequence[str]) -> int | None:
    for at, word in enumerate(options):
        name, equals, value = word.partition("=")
        if name not in names:
            continue
        value = value if equals else options[at + 1] if at + 1 < len(options) else ""
        if not value.isascii() or not value.isdigit() or int(value) < 1:
            raise RanksError(f"{name} is {value!r}, not a number of ranks", "Write a whole number, such as 2")
        return int(value)
    return None
