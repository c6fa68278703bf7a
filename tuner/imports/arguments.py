"""A command line in a file: launcher, script, ``--options``, variables. Split into words, never run. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from tuner.spec.yaml_text import plain_scalar

LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
RANK_OPTIONS = ("nproc_per_node", "num_processes", "num_gpus", "nproc-per-node")
ALONE = "activation-checkpoint:"
"""torchtitan's choice of a policy: a word that is never an option's value."""
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_NUMBER = re.compile(r"[-+]?\.?[0-9]")


@dataclass(kw_only=True)
class Arguments:
    """What a command line says.

    Attributes:
        values: Each option's value: true without one, a list with several. ``--no-x`` and ``--no_x`` are ``x: false``.
        ranks: Processes the launcher starts; None without a launcher's number.
        environment: Variables set by ``export`` or before the command.
        words: What belongs to no option: the program, the script, a choice that stands alone.
        problems: Options that stand twice with different values: (name, reason).
    """

    values: dict[str, object] = field(default_factory=dict)
    ranks: int | None = None
    environment: dict[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    problems: list[tuple[str, str]] = field(default_factory=list)


def parse_arguments(text: str) -> Arguments:
    """Reads shell lines, comments and continued lines included. Never raises: what cannot be split is a problem."""
    made = Arguments()
    for line in _lines(text):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            made.problems.append((line.strip()[:60], f"cannot be split into words: {error}"))
            continue
        _take(made, words)
    return made


def _lines(text: str) -> list[str]:
    return re.sub(r"\\\r?\n", " ", text).splitlines()


def _take(made: Arguments, words: Sequence[str]) -> None:
    rest = list(words)
    while rest and (rest[0] in ("export", "env", "exec", "srun", "set") or _ASSIGNMENT.match(rest[0])):
        word = rest.pop(0)
        if word == "set":
            return
        if _ASSIGNMENT.match(word):
            name, _, value = word.partition("=")
            made.environment[name] = value
    rest = _without_launcher(made, rest)
    _options(made, rest)


def _without_launcher(made: Arguments, words: list[str]) -> list[str]:
    """What follows the launcher's own options; the number of ranks is taken from them."""
    if not words or words[0].rsplit("/", 1)[-1] not in LAUNCHERS:
        return words
    script = next((at for at, word in enumerate(words) if word.endswith(".py") or word in ('"$@"', "$@")), None)
    own = words[1 : len(words) if script is None else script]
    for at, word in enumerate(own):
        name, _, value = word.lstrip("-").partition("=")
        if word.startswith("--") and name in RANK_OPTIONS:
            number = value or (own[at + 1] if at + 1 < len(own) else "")
            made.ranks = int(number) if number.isdigit() and int(number) > 0 else made.ranks
    return [] if script is None else [words[0], *words[script:]]


def _options(made: Arguments, words: Sequence[str]) -> None:
    at, alone = 0, list(made.words)
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("--") or len(word) == 2:
            alone.append(word)
            continue
        name, has_value, value = word[2:].partition("=")
        values = [value] if has_value else []
        while not has_value and at < len(words) and not _is_option(words[at]) and not words[at].startswith(ALONE):
            values.append(words[at])
            at += 1
        if len(values) > 1 and "." in name:  # torchtitan: a word alone after the last override
            alone += values[1:]
            values = values[:1]
        _put(made, name, values)
    made.words = tuple(alone)


def _is_option(word: str) -> bool:
    return word.startswith("-") and not _NUMBER.match(word) and len(word) > 1


def _put(made: Arguments, name: str, words: list[str]) -> None:
    section, _, key = name.rpartition(".")
    negated = not words and key.startswith(("no-", "no_"))
    if negated:
        name = f"{section}.{key[3:]}" if section else key[3:]
    read = [plain_scalar(word) for word in words]
    value = (not negated) if not read else read[0] if len(read) == 1 else read
    known = made.values.get(name, value)
    if known != value:
        made.problems.append((name, f"stands twice: {known} and {value}; the last one counts"))
    made.values[name] = value
