"""The form's fields, made from what the spec's own keys and the knobs' own list say; nothing is listed twice. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from objectives.config import KNOB_NAMES
from objectives.knobs import knob as knob_named
from objectives.knobs.knob import Knob
from tuner.spec.keys import DEVICES, SAMPLERS, Keys, LimitKeys, StudyKeys
from tuner.spec.objective_keys import FORMATS, KINDS, TOKEN_DTYPES, OwnKeys
from tuner.spec.yaml_text import parse_yaml, plain_scalar
from ui.forms.text import block, flow

Shape = Literal["text", "number", "choice", "choices", "values", "mapping", "boolean"]
Section = Literal["study", "objective", "search", "baseline", "limits", "more"]
TOP: tuple[str, ...] = ("study", "global_batch_size", "global_batch_tokens")
MORE: tuple[str, ...] = ("sampler", "device", "transfer", "seed", "max_grad_norm", "learning_rate")
CHOICES: Mapping[str, Sequence[str]] = {
    "sampler": SAMPLERS, "device": DEVICES, "format": FORMATS, "dtype": TOKEN_DTYPES,
}  # fmt: skip
"""Words of the keys that take one of some; the names are the keys'."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """One control.

    Attributes:
        path: Of the value in the spec.
        shape: ``text``; ``number`` (a number typed as text, so that it can be left out); ``choice`` of some values;
            ``choices``, several of them; ``values``, a list or range of integers; ``mapping``, lines of YAML.
        help: What the key means, as the reference says it.
        values: Of a choice.
        hint: What holds when it is left out, or how it is written.
    """

    section: Section
    path: tuple[str, ...]
    shape: Shape
    help: str
    values: tuple[Any, ...] = ()
    hint: str = ""

    @property
    def key(self) -> str:
        """The control's name in a session."""
        return f"form.{'.'.join(self.path)}"

    @property
    def label(self) -> str:
        """The key in words."""
        return (self.path[-1] if self.section != "objective" else ".".join(self.path[1:])).replace("_", " ")


def fields(kind: str | None) -> tuple[Field, ...]:
    """All controls, in order.

    Args:
        kind: The objective's; None while it has none.
    """
    return (
        *(_from_key("study", (name,), StudyKeys) for name in TOP),
        *(_objective(kind) if kind else ()),
        *(_searched(knob_named(name)) for name in KNOB_NAMES),
        *(_fixed(knob_named(name)) for name in KNOB_NAMES),
        *(_from_key("limits", ("limits", name), LimitKeys) for name in LimitKeys.model_fields),
        *(_from_key("more", (name,), StudyKeys) for name in MORE),
    )


def _objective(kind: str) -> Iterator[Field]:
    yield from _leaves(KINDS.get(kind, OwnKeys), ("objective",))


def _leaves(keys: type[Keys], at: tuple[str, ...]) -> Iterator[Field]:
    for name, field in keys.model_fields.items():
        inner = _inner(field.annotation)
        if inner is not None:
            yield from _leaves(inner, (*at, name))
        elif (*at, name) != ("objective", "kind"):
            yield _from_key("objective", (*at, name), keys)


def _inner(annotation: Any) -> type[Keys] | None:
    """The mapping that a key holds, where its keys are known."""
    options = (annotation, *getattr(annotation, "__args__", ()))
    return next((each for each in options if isinstance(each, type) and issubclass(each, Keys)), None)


def _from_key(section: Section, path: tuple[str, ...], keys: type[Keys]) -> Field:
    name = path[-1]
    field, said = keys.model_fields[name], keys.written[name]
    return Field(
        section=section, path=path, shape=_shape(name, said), help=field.description or "",
        values=tuple(CHOICES.get(name, (True, False) if said == "boolean" else ())), hint=_hint(said, field.default),
    )  # fmt: skip


def _shape(name: str, said: str) -> Shape:
    if name in CHOICES or said == "boolean":
        return "choice"
    if said.startswith("mapping"):
        return "mapping"
    return "text" if said in ("text", "path") else "number"


def _hint(said: str, default: Any) -> str:
    plain = isinstance(default, int | float | str) and not isinstance(default, bool)
    return f"{said.replace('`', '')}{f'; left out: {default}' if plain else ''}"


def _searched(knob: Knob) -> Field:
    help_text = "\n".join([knob.summary, *(f"{flow(each.value)}: {each.meaning}" for each in knob.choices)])
    whole = knob.kind == "integer"
    return Field(
        section="search", path=("search", knob.name), shape="values" if whole else "choices", help=help_text,
        values=knob.values, hint="1, 2, 4 or 1 to 64" if whole else "not searched",
    )  # fmt: skip


def _fixed(knob: Knob) -> Field:
    return Field(
        section="baseline", path=("baseline", knob.name), shape="number" if knob.kind == "integer" else "choice",
        help=knob.summary, values=knob.values, hint=f"the trainer's default: {flow(knob.default)}",
    )  # fmt: skip


def shown(field: Field, value: Any) -> Any:
    """A spec's value as its control holds it; what the control cannot hold is left out of it."""
    if field.shape == "choice":
        return next((each for each in field.values if type(each) is type(value) and each == value), None)
    if field.shape == "choices":
        listed = value if isinstance(value, list) else [] if value is None else [value]
        return [each for each in field.values if any(type(each) is type(one) and each == one for one in listed)]
    if value is None:
        return ""
    if field.shape == "values":
        return _range_text(value)
    if field.shape == "mapping" and isinstance(value, Mapping):
        return block(value)
    return flow(value)


def _range_text(value: Any) -> str:
    if isinstance(value, Mapping) and set(value) == {"low", "high"}:
        return f"{value['low']} to {value['high']}"
    return ", ".join(flow(each) for each in value) if isinstance(value, list) else flow(value)


def meant(field: Field, state: Any) -> Any:
    """What a control's state means in the spec; None for nothing. What cannot be read stays text."""
    if field.shape in ("choice", "boolean"):
        return state
    if field.shape == "choices":
        return list(state) or None
    text = str(state).strip()
    if not text:
        return None
    if field.shape == "text":
        return text
    if field.shape == "values":
        return _range_meant(text)
    return _plain(text)


def _range_meant(text: str) -> Any:
    low, between, high = text.partition(" to ")
    if between:
        return {"low": plain_scalar(low.strip()), "high": plain_scalar(high.strip())}
    return [plain_scalar(part.strip()) for part in text.replace(";", ",").split(",") if part.strip()]


def _plain(text: str) -> Any:
    """YAML in a field: a number, a list, a mapping; text where it is none of them."""
    found = parse_yaml(text)
    if not found.readable or found.problems or found.value is None:
        return text
    return found.value


def holds(field: Field, value: Any) -> bool:
    """Whether the control can show a value whole; where it cannot, the editor alone can change it."""
    if value is None:
        return True
    return _same(meant(field, shown(field, value)), value)


def _same(one: Any, other: Any) -> bool:
    return [one] == other or [other] == one or (type(one) is type(other) and bool(one == other))
