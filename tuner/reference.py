"""Writes ``docs/reference.md`` from the code itself: ``python -m tuner.reference docs/reference.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click

from objectives.config import KNOB_NAMES
from objectives.knobs import knob as knob_named
from objectives.knobs.knob import Knob
from objectives.trial.outcome import CAUSES, OUTCOMES
from tuner.cli.commands import tuner as command_line
from tuner.cli.outcome import EXIT_CODES
from tuner.documents import LAYOUTS
from tuner.export import FORMATS, TABLE
from tuner.export.table import TARGET as TABLE_TARGET
from tuner.imports import FORMATS as IMPORTS
from tuner.settings import VARIABLES
from tuner.spec.keys import Keys, LimitKeys, StudyKeys
from tuner.spec.model import MemoryLimit
from tuner.spec.objective_keys import (
    CausalLMKeys,
    ImageClassifierKeys,
    LoraKeys,
    ModelKeys,
    OwnKeys,
    PictureKeys,
    TextKeys,
)
from tuner.spec.quantities import show_memory, show_seconds
from tuner.spec.script_keys import PatchKeys, ScriptKeys

SECTIONS: tuple[tuple[str, str, type[Keys]], ...] = (
    ("Top level", "", StudyKeys),
    ("`limits`", "", LimitKeys),
    ("`objective` of kind `causal_lm`", "", CausalLMKeys),
    ("`objective` of kind `image_classifier`", "", ImageClassifierKeys),
    ("`objective.model`", "Exactly one of `config`, `path` and `hub`.", ModelKeys),
    ("`objective.data` of `causal_lm`", "Relative paths start at the spec's folder.", TextKeys),
    ("`objective.data` of `image_classifier`", "Relative paths start at the spec's folder.", PictureKeys),
    ("`objective.lora`", "", LoraKeys),
    ("`objective` of kind `script`", "A closed little grammar; nothing of it passes a shell.", ScriptKeys),
    ("`objective.patch` of `script`", "", PatchKeys),
    ("`objective` of your own", "", OwnKeys),
)
"""Title, remark and keys of each table of spec keys, in order."""

EXAMPLE = """\
study: llama-1b-4k
objective:
  kind: causal_lm            # image_classifier, script, or "package.module:name"
  model: {config: {model_type: llama, hidden_size: 2048, num_hidden_layers: 16, num_attention_heads: 32}}
  data: {path: "corpus/*.jsonl", tokenizer: ./tokenizer, sequence_length: 4096}
global_batch_size: 256
baseline: {micro_batch_size: 4, precision: bf16-mixed, activation_checkpointing: full}
search:
  micro_batch_size: {low: 1, high: 64}
  precision: [bf16-mixed, bf16-true]
  activation_checkpointing: [none, selective, full]
  loader_workers: [0, 2, 4, 8]
limits: {memory: 92%, trials: 40, time: 20m, trial_time: 120s, compile_time: 5m}
sampler: auto
"""
"""A whole spec."""

HEAD = """\
# Reference

*Made from the code by `make docs`; a test keeps it true. Do not edit.*

- [Spec](#spec)
- [Knobs](#knobs)
- [Outcomes and causes](#outcomes-and-causes)
- [Command line](#command-line)
- [JSON](#json)
- [Environment](#environment)
"""


def reference() -> str:
    """The whole page as Markdown."""
    parts = (HEAD, _spec(), _knobs(), _outcomes(), _commands(), _json(), _environment())
    return "\n".join(parts).rstrip() + "\n"


def main(arguments: Sequence[str]) -> None:
    """Writes the page to the file named, or to stdout without one."""
    if not arguments:
        sys.stdout.write(reference())
        return
    target = Path(arguments[0])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(reference(), encoding="utf-8")


def _spec() -> str:
    lines = [
        "## Spec",
        "",
        "One YAML 1.2 file (`off` is a word, not false). Unknown keys, wrong types and impossible combinations are",
        'refused with the line, the reason and the fix. Types are strict: `true` is not 1 and `"8"` is not 8. Tags,',
        "anchors and merge keys are not read.",
        "",
        "```yaml",
        EXAMPLE.rstrip(),
        "```",
        "",
    ]
    for title, remark, keys in SECTIONS:
        lines += [f"### {title}", "", *([remark, ""] if remark else []), *_keys(keys), ""]
    return "\n".join(lines)


def _keys(keys: type[Keys]) -> list[str]:
    rows = [
        (f"`{name}`", keys.written[name], _default(keys.written[name], field), field.description or "")
        for name, field in keys.model_fields.items()
    ]
    return _table(("key", "type", "default", "meaning"), rows)


def _default(written: str, field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or isinstance(value, (dict, Keys)):
        return ""
    return f"`{_quantity(written, value)}`"


def _quantity(written: str, value: Any) -> str:
    if isinstance(value, MemoryLimit):
        return show_memory(value)
    if written.startswith("time"):
        return show_seconds(value)
    return f"{100 * value:g}%" if written.startswith("percentage") else str(value)


def _knobs() -> str:
    lines = [
        "## Knobs",
        "",
        "What `search` and `baseline` may name. A choice that the device, a library or the model cannot run is found",
        "before the first trial and refused with the reason. `accumulation_steps` is no knob: it follows from the",
        "global batch and the micro-batch size.",
        "",
    ]
    for name in KNOB_NAMES:
        lines += _knob(knob_named(name))
    return "\n".join(lines)


def _knob(knob: Knob) -> list[str]:
    needs = f" Your own objective needs `{knob.needs}()` for it." if knob.needs else ""
    head = [f"### `{knob.name}`", "", f"{knob.summary} Default: `{_word(knob.default)}`.{needs}", ""]
    if knob.kind == "integer":
        return [*head, f"Whole numbers from {knob.low} to {knob.high}.", ""]
    rows = [(f"`{_word(choice.value)}`", choice.meaning, choice.source) for choice in knob.choices]
    return [*head, *_table(("value", "meaning", "source"), rows), ""]


def _outcomes() -> str:
    outcomes = [
        (f"`{row.outcome}`", row.meaning, row.told, row.teaches.replace("_", " "), row.tried_again) for row in OUTCOMES
    ]
    causes = [(f"`{slug}`", f"`{outcome}`", meaning) for slug, (outcome, meaning) in CAUSES.items()]
    return "\n".join(
        [
            "## Outcomes and causes",
            "",
            "Every run ends in exactly one outcome, and so does every trial. Only a certain out-of-memory teaches the",
            "search about other configurations.",
            "",
            *_table(("outcome", "meaning", "told to Optuna as", "teaches", "tried again"), outcomes),
            "",
            *_table(("cause", "outcome", "meaning"), causes),
            "",
        ]
    )


def _commands() -> str:
    lines = [
        "## Command line",
        "",
        "`tuner COMMAND`, or `python -m tuner COMMAND`. Every command that reports takes `--json` and then prints one",
        "JSON document on stdout and nothing else there; progress and errors go to stderr. `--debug` shows tracebacks.",
        "",
    ]
    for context, command in _leaves(command_line, click.Context(command_line, info_name="tuner")):
        lines += [
            f"### `{context.command_path}`",
            "",
            cleandoc(command.help or ""),
            "",
            *_options(command, context),
            "",
        ]
    codes = [(str(code), meaning) for code, meaning in EXIT_CODES]
    lines += ["### Exit status", "", *_table(("status", "meaning"), codes), ""]
    formats = ["### Export formats", "", *_formats(), "", "### Import formats", "", *_imports(), ""]
    return "\n".join([*lines, *formats])


def _formats() -> list[str]:
    """What ``tuner export --to`` takes."""
    rows = [(f"`{each.name}`", each.target) for each in FORMATS]
    return _table(("format", "made for"), [*rows, (f"`{TABLE}`", f"a whole study as JSON lines: {TABLE_TARGET}")])


def _imports() -> list[str]:
    """What ``tuner init --from`` reads."""
    return _table(("format", "what it is"), [(f"`{each.name}`", each.title) for each in IMPORTS])


def _leaves(command: click.Command, context: click.Context) -> Iterator[tuple[click.Context, click.Command]]:
    """The commands that do something, in alphabetical order, each with its context."""
    if not isinstance(command, click.Group):
        yield context, command
        return
    for name in sorted(command.commands):
        inner = command.commands[name]
        yield from _leaves(inner, click.Context(inner, info_name=name, parent=context))


def _options(command: click.Command, context: click.Context) -> list[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    records = [each.get_help_record(context) for each in command.params if isinstance(each, click.Option)]
    rows = [(f"`{record[0]}`", record[1]) for record in records if record is not None]
    return [f"`{usage}`", "", *_table(("option", "meaning"), rows)]


def _json() -> str:
    lines = [
        "## JSON",
        "",
        "Standard JSON: a missing figure is null, never 0 and never NaN. New fields may appear; these stay.",
        "",
    ]
    for layout in LAYOUTS:
        rows = [(f"`{field.name}`", field.type, field.meaning) for field in layout.fields]
        lines += [f"### {layout.title} ({layout.commands})", "", *_table(("field", "type", "meaning"), rows), ""]
    return "\n".join(lines)


def _environment() -> str:
    rows = [(f"`{each.name}`", each.meaning, each.default) for each in VARIABLES]
    return "\n".join(["## Environment", "", *_table(("variable", "meaning", "without it"), rows), ""])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return lines + [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    main(sys.argv[1:])
