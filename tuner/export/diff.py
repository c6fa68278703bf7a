"""A user's own configuration beside the winner's, key by key, and what is wrong with it by itself. Pure.

Nothing is mended: unknown, misspelt, renamed, contradictory and mistyped keys are listed, each with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tuner.export.handover import Handover
from tuner.export.problems import is_count, mistyped, not_counts, of_deepspeed, of_trainer, unknown

State = Literal["same", "differs", "only_yours", "only_exported"]
_MISSING = object()


@dataclass(frozen=True, kw_only=True)
class Line:
    """One key: your value, the exported one (None where one is missing), and how they compare."""

    key: str
    yours: Any
    exported: Any
    state: State


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Every key of both, and the problems of yours: ``{"key", "reason"}``."""

    lines: tuple[Line, ...]
    problems: tuple[Mapping[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"keys": [asdict(line) for line in self.lines], "problems": [dict(each) for each in self.problems]}


def compare(yours: Mapping[str, Any], exported: Mapping[str, Any], name: str, handover: Handover) -> Comparison:
    """Your configuration beside a format's main file.

    Args:
        yours: Your file as plain data.
        exported: The export's ``values``.
        name: The format.
        handover: What was handed over: its global batch is what yours should come to.
    """
    mine, theirs = dict(_flat(yours)), dict(_flat(exported))
    lines = [_line(key, mine.get(key, _MISSING), theirs.get(key, _MISSING)) for key in dict.fromkeys([*theirs, *mine])]
    problems = [*unknown(yours, name), *_types(mine, theirs), *_contradictions(yours, name, handover)]
    told = tuple({"key": key, "reason": reason} for key, reason in dict.fromkeys(problems))
    return Comparison(lines=tuple(lines), problems=told)


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        inner = isinstance(value, Mapping) and bool(value)
        found += _flat(value, f"{prefix}{key}.") if inner else [(f"{prefix}{key}", value)]
    return found


def _line(key: str, mine: Any, theirs: Any) -> Line:
    if mine is _MISSING:
        return Line(key=key, yours=None, exported=theirs, state="only_exported")
    if theirs is _MISSING:
        return Line(key=key, yours=mine, exported=None, state="only_yours")
    same = mine == theirs and isinstance(mine, bool) == isinstance(theirs, bool)
    return Line(key=key, yours=mine, exported=theirs, state="same" if same else "differs")


def _types(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (key, reason)
        for key, value in mine.items()
        if isinstance(value, str) and (reason := mistyped(value, theirs.get(key, _MISSING))) is not None
    ]


def _contradictions(yours: Mapping[str, Any], name: str, handover: Handover) -> list[tuple[str, str]]:
    if name == "hf-trainer":
        return [
            *of_trainer(yours),
            *_product(yours, handover, "per_device_train_batch_size", "gradient_accumulation_steps"),
        ]
    if name == "deepspeed":
        micro, steps = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
        return [*of_deepspeed(yours, handover.ranks), *_product(yours, handover, micro, steps)]
    if name == "lightning":
        return not_counts(yours, ("accumulate_grad_batches",))
    return []


def _product(yours: Mapping[str, Any], handover: Handover, micro: str, steps: str) -> list[tuple[str, str]]:
    size, times = yours.get(micro), yours.get(steps, 1)
    if not (is_count(size) and is_count(times)):
        return []
    found, wanted = size * times * handover.ranks, handover.global_batch_size
    if found == wanted:
        return []
    return [(micro, f"{size} x {times} x {handover.ranks} ranks are {found} samples; the study's batch is {wanted}")]
