"""What a script's template would execute, for whoever must allow it first (a service worker). Pure; nothing is run.

Strict where it matters: what is not understood for certain is not named, and so cannot be on anybody's list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from objectives.script import grammar
from objectives.script.launchers import INTERPRETERS, LAUNCHERS, Launcher

VALUED_BY_PYTHON = ("-W", "-X", "--check-hash-based-pycs")
"""Options of the interpreter whose value is the next word."""
FLAGS = ("--standalone", "--cpu", "--multi_gpu", "--use_deepspeed", "--use_fsdp")
VALUED = (
    "--nproc-per-node", "--nproc_per_node", "--nnodes", "--node-rank", "--node_rank", "--master-addr", "--master_addr",
    "--master-port", "--master_port", "--rdzv-backend", "--rdzv_backend", "--rdzv-endpoint", "--rdzv_endpoint",
    "--max-restarts", "--max_restarts", "--num_processes", "--num-processes", "--num_machines", "--num-machines",
    "--mixed_precision", "--dynamo_backend", "--main_process_port", "--main_process_ip",
    "--num_cpu_threads_per_process",
)  # fmt: skip
"""Options of the launchers that change nothing about what is run. With ``=`` or the value as the next word."""


@dataclass(frozen=True, kw_only=True)
class Executed:
    """What a command runs.

    Attributes:
        program: Its first word as written.
        script: Absolute path of the Python file it runs; None where it runs none, or that is not certain.
        module: The module it runs; None likewise.
        environment: Names of the variables the template sets, sorted.
    """

    program: str
    script: str | None = None
    module: str | None = None
    environment: tuple[str, ...] = ()


def executed(settings: Mapping[str, Any], folder: str) -> Executed:
    """What the settings of a ``kind: script`` objective would run.

    Args:
        settings: As validated.
        folder: Where its relative paths start.
    """
    words, variables = list(settings["command"]), tuple(sorted(settings.get("environment", {})))
    kind, name = _target(words)
    if name is None or grammar.names(words[0]) or grammar.names(name):
        return Executed(program=words[0], environment=variables)
    if kind == "module":
        return Executed(program=words[0], module=name, environment=variables)
    return Executed(program=words[0], script=str(Path(folder, name)), environment=variables)


def _target(words: Sequence[str]) -> tuple[str, str | None]:
    """``("script" or "module", its name)``; the name is None where it is not certain."""
    if PurePath(words[0]).name in INTERPRETERS or PurePath(words[0]).name.startswith("python3."):
        kind, name, rest = _by_python(words[1:])
        launcher = None if kind != "module" else _launcher(name, rest)
    else:
        kind, name, rest = "script", None, list(words[1:])
        launcher = _launcher(PurePath(words[0]).name, rest)
    if launcher is None:
        return kind, name
    return _by_launcher(rest[len(launcher.words) - 1 :])


def _by_python(words: Sequence[str]) -> tuple[str, str | None, list[str]]:
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word == "-m" and waiting:
            return "module", waiting[0], waiting[1:]
        if not word.startswith("-"):
            return "script", word, waiting
        if word.startswith(("-c", "-m")) or word == "-":
            break
        if word in VALUED_BY_PYTHON and waiting:
            waiting.pop(0)
    return "script", None, []


def _launcher(first: str | None, rest: Sequence[str]) -> Launcher | None:
    begins = (first, *rest)
    return next((one for one in LAUNCHERS if begins[: len(one.words)] == one.words), None)


def _by_launcher(words: Sequence[str]) -> tuple[str, str | None]:
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word in ("-m", "--module"):
            return "module", waiting[0] if waiting and not waiting[0].startswith("-") else None
        if not word.startswith("-"):
            return "script", word
        if word in VALUED and waiting:
            waiting.pop(0)
        elif word not in FLAGS and word.partition("=")[0] not in VALUED:
            break
    return "script", None
