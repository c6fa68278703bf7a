"""A script's template: what is searched becomes arguments, environment and a patched copy of a configuration file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from objectives.config import KNOB_NAMES, TrainingConfig
from objectives.script import grammar
from objectives.script.grammar import DERIVED, PATCHED_FILE, RUN_FOLDER, GrammarError, Values
from objectives.script.patching import patched

Path_ = tuple[str | int, ...]
Problem = tuple[Path_, str, str]
"""Where in the settings, the reason, the fix."""


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A configuration file that is copied, with some of its values replaced.

    Attributes:
        file: YAML or JSON (by its ending), relative to the spec's folder. Never written to.
        values: By dotted key: a text of the grammar, a scalar, or ``{knob: table of words}``.
    """

    file: str
    values: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Filled:
    """What is started for one configuration.

    Attributes:
        arguments: Program and arguments.
        environment: Variables beside those the process starts with.
        file: The patched copy's name and content; None without one.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    file: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Template:
    """The template of a ``kind: script`` objective, as its settings give it."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    patch: Patch | None = None
    words: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Template:
        """Reads the settings of an objective that has been validated."""
        patch = settings.get("patch")
        return cls(
            command=tuple(map(str, settings["command"])),
            environment={name: str(value) for name, value in settings.get("environment", {}).items()},
            patch=None if patch is None else Patch(file=patch["file"], values=patch["values"]),
            words=settings.get("words", {}),
        )

    def texts(self) -> Iterator[tuple[Path_, str]]:
        """Every text of the grammar with its place."""
        yield from ((("command", at), text) for at, text in enumerate(self.command))
        yield from ((("environment", name), text) for name, text in self.environment.items())
        if self.patch is not None:
            yield from (
                (("patch", "values", key), value) for key, value in self.patch.values.items() if isinstance(value, str)
            )

    def tables(self) -> Iterator[tuple[Path_, str, Mapping[str, Any]]]:
        """Every table of words: its place, its knob, and the table."""
        yield from ((("words", knob), knob, table) for knob, table in self.words.items())
        if self.patch is not None:
            for key, value in self.patch.values.items():
                for knob, table in value.items() if isinstance(value, Mapping) else ():
                    yield ("patch", "values", key, knob), knob, table

    def placeholders(self) -> frozenset[str]:
        """Names of everything the template uses: knobs and derived values."""
        inline = {knob for path, knob, _ in self.tables() if path[0] == "patch"}
        return frozenset(inline.union(*(grammar.names(text) for _, text in self.texts())))

    def knobs(self) -> frozenset[str]:
        """The knobs the template carries."""
        return self.placeholders().intersection(KNOB_NAMES)

    def fill(
        self, config: TrainingConfig, *, global_batch_size: int, seed: int, folder: Path, run_folder: Path
    ) -> Filled:
        """The command of one configuration.

        Args:
            config: Of the trial.
            global_batch_size: Samples per optimizer step over all ranks.
            seed: The study's.
            folder: Where the template's relative paths start.
            run_folder: Where the patched copy will lie.

        Raises:
            GrammarError: A value has no words, or the file cannot be patched so.
        """
        copy = None if self.patch is None else run_folder / Path(self.patch.file).name
        derived = {
            "accumulation_steps": config.accumulation_steps,
            "global_batch_size": global_batch_size,
            "seed": seed,
        }
        values: dict[str, grammar.Words] = {name: (value,) for name, value in derived.items()}
        values[PATCHED_FILE] = () if copy is None else (str(copy),)
        values[RUN_FOLDER] = (str(run_folder),)
        for name in self.knobs():
            value = getattr(config, name)
            values[name] = looked_up(name, self.words[name], value) if name in self.words else (value,)
        return Filled(
            arguments=tuple(one for text in self.command for one in grammar.arguments(text, values)),
            environment={name: grammar.one_text(text, values) for name, text in self.environment.items()},
            file=None if copy is None else (copy.name, self._patched(config, values, folder)),
        )

    def _patched(self, config: TrainingConfig, values: Values, folder: Path) -> str:
        assert self.patch is not None
        made = {key: _patch_value(value, config, values) for key, value in self.patch.values.items()}
        return patched(folder / self.patch.file, made)


def _patch_value(value: Any, config: TrainingConfig, values: Values) -> Any:
    if isinstance(value, Mapping):
        ((knob, table),) = value.items()
        return grammar.value_of(looked_up(knob, table, getattr(config, knob)))
    return grammar.typed(value, values) if isinstance(value, str) else value


def looked_up(knob: str, table: Mapping[str, Any], value: Any) -> grammar.Words:
    """The words of a knob's value.

    Raises:
        GrammarError: The table has no entry for it.
    """
    key = grammar.key_of(value)
    if key not in table:
        raise GrammarError(f"{knob}={key} has no words: the table of {knob} knows {', '.join(table) or 'nothing'}")
    return grammar.words_of(table[key])


def problems(template: Template, searched: Mapping[str, Sequence[Any]], baseline: Mapping[str, Any]) -> list[Problem]:
    """Everything that cannot work between a template and the knobs a spec searches; empty when it can.

    Args:
        template: The template.
        searched: Values by searched knob.
        baseline: The baseline's values by knob.
    """
    found = [(path, text) for path, text in _text_problems(template)]
    if found:
        return [(path, text, "") for path, text in found]
    given = {**{knob: list(values) for knob, values in searched.items()}}
    for knob, value in baseline.items():
        given[knob] = [*given.get(knob, []), value]
    return [
        *_unused(template, searched, baseline),
        *_batch(template, searched, baseline),
        *_patched_file(template),
        *(problem for table in template.tables() for problem in _table(template, *table, given)),
        *_embedded(template, given),
    ]


def _text_problems(template: Template) -> Iterator[tuple[Path_, str]]:
    for path, text in template.texts():
        try:
            for name in grammar.names(text):
                if name not in KNOB_NAMES and name not in DERIVED:
                    known = ", ".join((*KNOB_NAMES, *DERIVED))
                    yield path, f"{{{name}}} is no knob (a brace itself is written '{{{{'); known: {known}"
        except GrammarError as error:
            yield path, str(error)
    for path, knob, _ in template.tables():
        if knob not in KNOB_NAMES:
            yield path, f"{knob!r} is no knob; known: {', '.join(KNOB_NAMES)}"


def _unused(template: Template, searched: Mapping[str, Any], baseline: Mapping[str, Any]) -> Iterator[Problem]:
    carried = template.knobs()
    for knob in searched:
        if knob not in carried:
            yield (
                (),
                f"the knob {knob!r} is searched, and the template does not use it",
                f"Write {{{knob}}} where it belongs",
            )
    for knob in baseline:
        if knob not in carried and knob not in searched and knob != "micro_batch_size":
            reason = f"the baseline sets {knob!r}, and the template does not use it"
            yield (), reason, f"Write {{{knob}}} where it belongs, or take it out of the baseline"
    for knob in template.words:
        if knob not in carried:
            yield ("words", knob), f"the template does not use {{{knob}}}", "Remove the table, or use the knob"


def _batch(template: Template, searched: Mapping[str, Any], baseline: Mapping[str, Any]) -> Iterator[Problem]:
    used = template.placeholders()
    if "micro_batch_size" not in used and "micro_batch_size" not in baseline:
        reason = "nothing says the script's micro-batch size"
        yield ("command",), reason, "Use {micro_batch_size}, or state the script's own as baseline.micro_batch_size"
    if "micro_batch_size" in searched and used.isdisjoint(("accumulation_steps", "global_batch_size")):
        reason = "micro_batch_size is searched, and nothing tells the script how many micro-batches make a step"
        yield ("command",), reason, "Use {accumulation_steps}, or {global_batch_size} where the script derives it"


def _patched_file(template: Template) -> Iterator[Problem]:
    uses = any(PATCHED_FILE in grammar.names(text) for path, text in template.texts() if path[0] != "patch")
    if template.patch is None and uses:
        yield (
            ("command",),
            f"{{{PATCHED_FILE}}} is used, and nothing is patched",
            "Add 'patch: {file: ..., values: ...}'",
        )
    if template.patch is not None and not uses:
        reason = "the script would never read the patched copy"
        yield ("patch",), reason, f"Hand it over as {{{PATCHED_FILE}}} in the command or the environment"


def _table(
    template: Template, path: Path_, knob: str, table: Mapping[str, Any], given: Mapping[str, Sequence[Any]]
) -> Iterator[Problem]:
    for value in dict.fromkeys(map(grammar.key_of, given.get(knob, ()))):
        if value not in table:
            yield path, f"{knob}={value} may be run, and has no words", f"Add '{value}: ...' to the table"
    for value, entry in table.items():
        try:
            grammar.words_of(entry)
        except GrammarError as error:
            yield (*path, value), str(error), "Write a word, a list of words, or '' for none"


def _embedded(template: Template, given: Mapping[str, Sequence[Any]]) -> Iterator[Problem]:
    """Placeholders inside longer text (or in a variable) whose words are not exactly one."""
    for path, text in template.texts():
        parts = grammar.parse(text)
        alone = len(parts) == 1 and path[0] != "environment"
        for name in () if alone else grammar.names(text):
            for value in given.get(name, ()) if name in template.words else ():
                entry = template.words[name].get(grammar.key_of(value))
                if not isinstance(entry, Mapping) and len(grammar.words_of(entry)) != 1:
                    said = grammar.key_of(value)
                    reason = f"{{{name}}} inside {text!r} needs exactly one word, and {said} has another number"
                    yield path, reason, "Give the placeholder an argument of its own, or each value one word"
                    return
