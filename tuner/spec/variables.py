"""The environment a spec may give its runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tuner.errors import SpecProblem
from tuner.spec.shape import line_of, shown
from tuner.spec.yaml_text import KeyPath, dotted

ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
SECRETS = frozenset(
    {"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "APIKEY"}
)
OURS: Mapping[str, str] = {
    **dict.fromkeys(
        ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONSAFEPATH"),
        "Install the package, or put the module beside the spec",
    ),
    **dict.fromkeys(
        ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
        "Set it for the tuner itself; every run gets the one device it is for",
    ),
    **dict.fromkeys(
        ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        "Remove it; ranks are started by the tuner",
    ),
    "NVIDIA_TF32_OVERRIDE": "Search precision: [fp32, tf32]; the variable would beat that knob",
}
"""Variables that a spec cannot set, with the way out."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def check_environment(
    values: Mapping[str, Any], *, searched: Mapping[str, Any], lines: Mapping[KeyPath, int]
) -> tuple[dict[str, str], list[SpecProblem]]:
    """The variables as text, by name in alphabetical order, and every problem with them.

    Args:
        values: The spec's ``environment``.
        searched: Knobs the spec searches or sets in its baseline: an allocator setting in both is a conflict.
        lines: Line by path.
    """
    problems = []
    for name, value in values.items():
        found = _problem(name, value, searched)
        if found is not None:
            path = ("environment", name)
            problems.append(SpecProblem(where=dotted(path), reason=found[0], fix=found[1], line=line_of(path, lines)))
    return {name: str(values[name]) for name in sorted(values)}, problems


def _problem(name: str, value: Any, searched: Mapping[str, Any]) -> tuple[str, str] | None:
    return _name_problem(name) or _text_problem(value) or _allocator_problem(name, str(value), searched)


def _name_problem(name: str) -> tuple[str, str] | None:
    if not _NAME.fullmatch(name):
        return f"{name!r} is not the name of a variable", "Use letters, digits and '_'"
    if name in OURS:
        return "a spec cannot set this variable", OURS[name]
    if name.startswith("TUNER_"):
        return "the tuner's own variables are not a run's", "Set it where you start the tuner"
    words = name.upper().split("_")
    if SECRETS.intersection(words) or any(word.endswith(("PASSWORD", "SECRET", "APIKEY")) for word in words):
        return "this looks like a credential, and a spec is stored", "Set it where you start the tuner, not in the spec"
    return None


def _text_problem(value: Any) -> tuple[str, str] | None:
    if type(value) is not str and type(value) is not int:
        return f"{shown(value)} is not text", "Put the value in quotes"
    if isinstance(value, str) and ("\n" in value or not value.isprintable()):
        return "the value holds a line break or another unprintable character", "Write one line of text"
    return None


def _allocator_problem(name: str, value: str, searched: Mapping[str, Any]) -> tuple[str, str] | None:
    if name not in ALLOCATOR_VARIABLES:
        return None
    if "allocator" in searched:
        return "the knob 'allocator' sets this variable too", "Keep one of the two"
    from objectives.knobs.allocator import validate_allocator_setting

    try:
        validate_allocator_setting(value)
    except ValueError as error:
        return str(error), "Write pairs such as expandable_segments:True,garbage_collection_threshold:0.8"
    return None
