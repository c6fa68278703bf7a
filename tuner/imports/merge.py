"""Several files of one job as one configuration. A file's word beats a guess. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from objectives.config import KnobValue
from objectives.knobs import knob as knob_named
from tuner.imports.imported import Imported, Problem
from tuner.imports.own import split_environment

ONE_TRUTH = (
    "accumulation_steps", "ranks", "global_batch_size", "max_grad_norm", "learning_rate", "seed", "model", "lora",
    "device",
)  # fmt: skip
"""Fields that two files must not say differently."""


def merged(read: tuple[Imported, ...], ranks: int | None = None) -> Imported:
    """One configuration of several.

    Args:
        read: What each file says, at least one.
        ranks: Beats what the files say; None for theirs.
    """
    knobs, uncertain, clashes = _knobs(read)
    fields = {name: _one(read, name, clashes) for name in ONE_TRUTH}
    fields["ranks"] = ranks or fields["ranks"]
    environment, allocator, tf32 = split_environment(_joined(read, lambda each: each.environment))
    if allocator is not None:
        knobs["allocator"] = allocator
    if tf32 and knobs.get("precision") == "fp32":
        knobs["precision"] = "tf32"
    if fields["device"] == "cpu" and knobs.get("pin_memory"):
        knobs["pin_memory"] = False  # the trainers' default does nothing where there is no GPU
    made = Imported(
        format=" + ".join(dict.fromkeys(each.format for each in read if each.format != "environment")) or "environment",
        knobs=_legal(knobs, clashes),
        uncertain={name: why for name, why in uncertain.items() if name in knobs},
        data=_joined(read, lambda each: each.data),
        environment=environment,
        problems=tuple(dict.fromkeys([*(problem for each in read for problem in each.problems), *clashes])),
        notes=tuple(dict.fromkeys(note for each in read for note in each.notes if not _answered(note, read))),
        left=tuple(dict.fromkeys(key for each in read for key in each.left)),
        **fields,
    )
    return _with_batch(made)


def _joined(read: Sequence[Imported], part: Callable[[Imported], Mapping[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for each in read:
        made = {**part(each), **made}
    return made


def _answered(note: str, read: Sequence[Imported]) -> bool:
    """Whether a note asks for a file that is among those that were read."""
    return "name it as well" in note and any(each.format == "deepspeed" for each in read)


def _knobs(read: Sequence[Imported]) -> tuple[dict[str, KnobValue], dict[str, str], list[Problem]]:
    made: dict[str, KnobValue] = {}
    uncertain: dict[str, str] = {}
    clashes: list[Problem] = []
    for each in sorted(read, key=lambda one: one.format == "hf-trainer", reverse=True):
        for name, value in each.knobs.items():
            sure = name not in each.uncertain
            if name not in made or (sure and name in uncertain):
                made[name] = value
                uncertain.pop(name, None)
                if not sure:
                    uncertain[name] = each.uncertain[name]
            elif sure and value != made[name]:
                clashes.append(_clash(each, name, made[name], value))
    return made, uncertain, clashes


def _clash(each: Imported, name: str, first: Any, second: Any) -> Problem:
    return Problem(file=each.format, key=name, reason=f"the files disagree: {first} in another, {second} here")


def _one(read: Sequence[Imported], name: str, clashes: list[Problem]) -> Any:
    said = [(each, value) for each in read if (value := getattr(each, name)) is not None]
    clashes += [_clash(each, name, said[0][1], value) for each, value in said[1:] if value != said[0][1]]
    return said[0][1] if said else None


def _legal(knobs: Mapping[str, KnobValue], clashes: list[Problem]) -> dict[str, KnobValue]:
    """Values a spec takes; a number out of range or a word of no knob is a problem, not a baseline."""
    made = {}
    for name, value in knobs.items():
        knob = knob_named(name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        good = whole and knob.low <= int(value) <= knob.high if knob.kind == "integer" else value in knob.values
        if good and (knob.kind == "boolean") == isinstance(value, bool):
            made[name] = value
        else:
            clashes.append(Problem(file="", key=name, reason=f"{value!r} is no value of the knob {name}"))
    return made


def _with_batch(made: Imported) -> Imported:
    """The global batch, where it follows; a product that is not what a file says is a contradiction."""
    micro, steps, ranks = made.knobs.get("micro_batch_size"), made.accumulation_steps, made.ranks or 1
    if not isinstance(micro, int) or steps is None:
        return made
    product, said = micro * steps * ranks, made.global_batch_size
    if said is None:
        return replace(made, global_batch_size=product)
    if said == product:
        return made
    reason = f"{said} is not micro-batch {micro} x accumulation {steps} x {ranks} ranks = {product}"
    return replace(
        made, global_batch_size=None,
        problems=(*made.problems, Problem(file="", key="global_batch_size", reason=reason)),
    )  # fmt: skip
