"""What a foreign configuration says in our words, and the pen with which a format's reader writes it down. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from objectives.config import KnobValue
from tuner.export.problems import Found, is_count, mistyped
from tuner.imports.source import Source

YES, NO = ("true", "yes", "on"), ("false", "no", "off")
"""Words of YAML 1.1 (and of command lines) for booleans: the trainers' own parsers take them."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something wrong in the user's file. Nothing is mended.

    Attributes:
        file: Its name.
        line: 1-based; None where lines are not known.
    """

    file: str
    key: str
    reason: str
    line: int | None = None


@dataclass(frozen=True, kw_only=True)
class Imported:
    """A configuration in our words; what it does not say is None or absent.

    Attributes:
        format: The format's name.
        knobs: Knob values it sets.
        uncertain: By knob, why its value is only the likeliest reading.
        accumulation_steps: Micro-batches per optimizer step.
        ranks: Data-parallel ranks of the job.
        global_batch_size: Samples per optimizer step, where the file says it itself.
        model: ``{"path": ...}`` or ``{"hub": ...}``.
        data: Keys of the spec's ``data`` (``path``, ``sequence_length``, ``tokenizer``).
        lora: Keys of the spec's ``lora``; None without adapters.
        device: ``cpu`` where it says so.
        environment: Variables for every run.
        notes: What a person should know beside the spec.
        left: Keys that are the job's own business: neither searched nor needed for a study.
    """

    format: str
    knobs: Mapping[str, KnobValue] = field(default_factory=dict)
    uncertain: Mapping[str, str] = field(default_factory=dict)
    accumulation_steps: int | None = None
    ranks: int | None = None
    global_batch_size: int | None = None
    max_grad_norm: float | None = None
    learning_rate: float | None = None
    seed: int | None = None
    model: Mapping[str, str] | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    lora: Mapping[str, Any] | None = None
    device: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class Reading:
    """Reads one source's keys, remembers which were read, and writes down what they mean.

    A value of the wrong type is a problem; where its meaning is plain (the text ``"8"``) it is taken for that.
    """

    def __init__(self, source: Source, format_name: str) -> None:
        self.source, self._format = source, format_name
        self._used: set[str] = set()
        self._knobs: dict[str, KnobValue] = {}
        self._uncertain: dict[str, str] = {}
        self._fields: dict[str, Any] = {}
        self._problems: dict[tuple[str, str], None] = {}
        self._notes: dict[str, None] = {}

    def value(self, *names: str) -> Any:
        """The value of the first of these keys that is there (dotted: inside sections); None without one."""
        for name in names:
            self._used.add(name.partition(".")[0] if name not in self.source.values else name)
        return next((found for name in names if (found := self._at(name)) is not None), None)

    def _at(self, name: str) -> Any:
        if name in self.source.values:
            return self.source.values[name]
        place: Any = self.source.values
        for part in name.split("."):
            place = place.get(part) if isinstance(place, Mapping) else None
        return place

    def flag(self, *names: str) -> bool | None:
        """A boolean; None where it is missing or no boolean."""
        given = self.value(*names)
        if given is None or isinstance(given, bool):
            return given
        word = str(given).strip().lower()
        if word not in (*YES, *NO):
            return None
        if isinstance(given, str) and self._flag_is_text(word):
            self.problem(self._named(names), mistyped(given) or f"{given!r} is text, not a boolean")
        return word in YES

    def _flag_is_text(self, word: str) -> bool:
        """YAML's unquoted ``yes`` and ``off`` are booleans to the trainers' parsers; JSON's never are."""
        if self.source.written_as == "arguments":
            return False
        return word in ("true", "false") or self.source.path.suffix == ".json"

    def count(self, *names: str, least: int = 1) -> int | None:
        """A whole number of at least ``least``; None where it is missing, ``auto`` or unusable (a problem then)."""
        given = self.value(*names)
        if given is None or given == "auto":
            return None
        if isinstance(given, str) and given.strip().isdigit():
            self.problem(self._named(names), f"{given!r} is text, not a number")
            given = int(given)
        if (is_count(given) or given == 0) and not isinstance(given, bool) and given >= least:
            return int(given)
        self.problem(self._named(names), f"{given!r} is not a whole number above {least - 1}")
        return None

    def number(self, *names: str) -> float | None:
        """A number; text such as ``5e-5``, which YAML 1.1 parsers take for text, is read and said."""
        given = self.value(*names)
        if given is None or given == "auto":
            return None
        if isinstance(given, (int, float)) and not isinstance(given, bool):
            return float(given)
        self.problem(self._named(names), f"{given!r} is not a number")
        return None

    def word(self, *names: str) -> str | None:
        """A text, without blanks around it; None where it is missing or empty."""
        given = self.value(*names)
        text = None if given is None or isinstance(given, (Mapping, list)) else str(given).strip()
        return text or None

    def chosen(self, knob: str, words: Mapping[str, KnobValue], *names: str) -> None:
        """A knob by the target's word for it; a word without a knob's value is said."""
        given = self.word(*names)
        if given is None:
            return
        if (found := words.get(given.lower())) is not None:
            self.knob(knob, found)
        else:
            self.note(f"{self._named(names)}: {given} has no value of the knob {knob}; it is not in the baseline")

    def knob(self, name: str, value: KnobValue | None, *, unless_sure: str | None = None) -> None:
        """Writes a knob down; ``unless_sure`` says why it is only the likeliest reading."""
        if value is None:
            return
        self._knobs[name] = value
        self._uncertain.pop(name, None)
        if unless_sure is not None:
            self._uncertain[name] = unless_sure

    def put(self, **fields: Any) -> None:
        """Writes fields of :class:`Imported` down; None says nothing."""
        self._fields |= {name: value for name, value in fields.items() if value is not None}

    def problem(self, key: str, reason: str) -> None:
        """Something is wrong with a key."""
        self._problems.setdefault((key, reason))

    def problems(self, found: Found) -> None:
        """Several of them."""
        for key, reason in found:
            self.problem(key, reason)

    def note(self, text: str) -> None:
        """What a person should know."""
        self._notes.setdefault(text)

    def use(self, names: Iterable[str]) -> None:
        """These keys have been dealt with."""
        self._used.update(names)

    def done(self) -> Imported:
        """Everything that was written down."""
        wrong = {key.partition(".")[0] for key, _ in self._problems}
        left = [key for key in self.source.values if key not in self._used and key not in wrong]
        given = [(key, reason, line) for key, reason, line in self.source.problems]
        found = [(key, reason, self._line(key)) for key, reason in self._problems]
        return Imported(
            format=self._format,
            knobs=dict(self._knobs),
            uncertain=dict(self._uncertain),
            problems=tuple(
                Problem(file=self.source.path.name, key=key, reason=reason, line=line)
                for key, reason, line in (*given, *found)
            ),
            notes=tuple(self._notes),
            left=tuple(left),
            **self._fields,
        )

    def _named(self, names: tuple[str, ...]) -> str:
        return next((name for name in names if self._at(name) is not None), names[0])

    def _line(self, key: str) -> int | None:
        path = tuple(key.split("."))
        return next((self.source.lines[path[:size]] for size in range(len(path), 0, -1)
                     if path[:size] in self.source.lines), None)  # fmt: skip


def local_or_hub(name: str, folder: Path) -> dict[str, str]:
    """A model's name as the spec says it: a folder that is there (or is written like one), else a name on the hub."""
    written = name.startswith((".", "/", "~")) or name.count("/") > 1
    return {"path": name} if written or (folder / name).is_dir() else {"hub": name}
