"""The keys of ``objective`` of kind ``script``, and what its template must do with the searched knobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from objectives.script.grammar import GrammarError, words_of
from objectives.script.launchers import RanksError, ranks_of
from objectives.script.template import Template, problems
from tuner.errors import SpecProblem
from tuner.spec.keys import LARGEST_INTEGER, Keys, refuse
from tuner.spec.shape import line_of, shown
from tuner.spec.variables import check_environment
from tuner.spec.yaml_text import KeyPath, dotted

LONGEST_COMMAND = 1000


def _command(value: list[Any]) -> list[str]:
    if not value or len(value) > LONGEST_COMMAND:
        raise refuse("a command has 1 to 1000 arguments", "Write [python, train.py, ...]")
    for word in value:
        if isinstance(word, bool) or not isinstance(word, (str, int, float)) or "\n" in str(word):
            raise refuse(f"{shown(word)} is no argument", "Write text; put true, false and null in quotes")
    if not str(value[0]).strip():
        raise refuse("the command has no program", "Write [python, train.py, ...]")
    return [str(word) for word in value]


def _values(value: dict[str, Any]) -> dict[str, Any]:
    if not value:
        raise refuse("nothing is patched", "Write 'training.micro_batch: \"{micro_batch_size}\"', or remove 'patch'")
    for key, inner in value.items():
        table = isinstance(inner, dict)
        if isinstance(inner, list) or (table and (len(inner) != 1 or not isinstance(next(iter(inner.values())), dict))):
            raise refuse(f"{key!r} gets {shown(inner)}", "Write a value, '{knob}', or {knob: {value: word}}")
    return value


def _words(value: dict[str, Any]) -> dict[str, Any]:
    for knob, table in value.items():
        if not isinstance(table, dict) or not table:
            raise refuse(f"the words of {knob!r} are no table", "Write {bf16-mixed: [--bf16], fp32: ''}")
        for key, entry in table.items():
            try:
                words_of(entry)
            except GrammarError as error:
                raise refuse(f"{knob}={key}: {error}", "Write a word, a list of words, or '' for none") from error
    return value


class PatchKeys(Keys):
    """``objective.patch``."""

    written: ClassVar[dict[str, str]] = {"file": "path", "values": "mapping: dotted key to value"}
    file: Annotated[str, Field(min_length=1)] = Field(
        description="A YAML or JSON file the script reads. A copy is patched, in a folder of the run's own, and handed "
        "over as `{patched_file}`."
    )
    values: Annotated[dict[str, Any], AfterValidator(_values)] = Field(
        description="What replaces what: a plain value, text with placeholders (`'{micro_batch_size}'` alone stays a "
        "number), or `{knob: {value: word}}`."
    )


class ScriptKeys(Keys):
    """``objective`` of kind ``script``."""

    written: ClassVar[dict[str, str]] = {
        "kind": "`script`",
        "command": "list of texts",
        "environment": "mapping: variable to text",
        "patch": "mapping",
        "words": "mapping: knob to table of words",
        "ranks": "integer",
    }
    kind: str = Field(description="Your own training script, started as it stands.")
    command: Annotated[list[Any], AfterValidator(_command)] = Field(
        description="Program and arguments, no shell. `{knob}` stands for a knob's value; also "
        "`{accumulation_steps}`, `{global_batch_size}`, `{seed}`, `{patched_file}` and `{run_folder}` (gone when "
        "the run is). A brace itself is written `{{` or `}}`. `python`, `torchrun` and `accelerate` are first looked "
        "for beside the tuner's own interpreter."
    )
    environment: dict[str, Any] = Field(
        default_factory=dict, description="Variables of the script, with placeholders; the same names are refused."
    )
    patch: PatchKeys | None = Field(default=None, description="A configuration file with some values replaced.")
    words: Annotated[dict[str, Any], AfterValidator(_words)] = Field(
        default_factory=dict,
        description="How a knob's values are written: `precision: {bf16-mixed: [--bf16, 'True'], fp32: ''}`. A list is "
        "so many arguments, `''` none. Without a table a value is written as it is.",
    )
    ranks: Annotated[int, Field(ge=1, le=LARGEST_INTEGER)] | None = Field(
        default=None,
        description="Data-parallel ranks the command starts; left out: read from `torchrun --nproc_per_node` or "
        "`accelerate launch --num_processes`, else 1.",
    )


def script_ranks(objective: Any) -> int:
    """Ranks of an objective that may still be wrong elsewhere: 1 for every other kind, or where it cannot be said."""
    if not isinstance(objective, dict) or objective.get("kind") != "script":
        return 1
    try:
        found = ranks_of(objective) if isinstance(objective.get("command"), list) else 1
    except (RanksError, TypeError, ValueError):
        return 1
    return found if found >= 1 else 1


def check_script(
    values: Mapping[str, Any],
    *,
    searched: Mapping[str, Sequence[Any]],
    baseline: Mapping[str, Any],
    tokens: bool,
    lines: Mapping[KeyPath, int],
) -> list[SpecProblem]:
    """What is wrong between a script's template (whose shape is right) and the rest of the spec.

    Args:
        values: What stands under ``objective``.
        searched: Legal values by searched knob.
        baseline: The baseline's legal values.
        tokens: Whether the global batch is given in tokens.
        lines: Line by path.
    """
    found: list[tuple[KeyPath, str, str]] = []
    if tokens:
        reason = "a script's batch is counted in samples: its data is not known"
        found.append((("global_batch_tokens",), reason, "Give global_batch_size instead"))
    try:
        ranks_of(values)
    except RanksError as error:
        found.append((("objective", "command"), error.reason, error.fix))
    template = Template.of(values)
    found += [
        (("objective", *(path or ("command",))), reason, fix)
        for path, reason, fix in problems(template, searched, baseline)
    ]
    _, variables = check_environment(template.environment, searched=searched, lines={})
    found += [(("objective", *each.where.split(".")), each.reason, each.fix) for each in variables]
    return [SpecProblem(where=dotted(path), reason=why, fix=fix, line=line_of(path, lines)) for path, why, fix in found]
