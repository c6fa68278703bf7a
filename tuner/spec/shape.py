"""pydantic's errors as problems in the user's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from tuner.errors import SpecProblem
from tuner.spec.keys import Keys, nearest_fix
from tuner.spec.yaml_text import KeyPath, dotted

Model = TypeVar("Model", bound=Keys)

OTHER_WORDS: Mapping[str, str] = {
    "name": "study",
    "batch_size": "global_batch_size",
    "train_batch_size": "global_batch_size",
    "effective_batch_size": "global_batch_size",
    "space": "search",
    "search_space": "search",
    "budget": "limits",
    "env": "environment",
    "lr": "learning_rate",
    "gradient_clipping": "max_grad_norm",
    "timeout": "time",
    "name_or_path": "hub",
    "model_name_or_path": "hub",
    "pretrained": "hub",
    "folder": "path",
    "text_column": "text_field",
    "vocab_size": "tokenizer",
    "resolution": "image_size",
    "n_trials": "trials",
    "max_trials": "trials",
    "memory_limit": "memory",
    "seq_len": "sequence_length",
    "max_length": "sequence_length",
    "block_size": "sequence_length",
}
"""Keys that other tools use, and ours."""

_KINDS = {
    "string_type": ("text", "Write text; put it in quotes if it looks like a number"),
    "int_type": ("a whole number", "Write a whole number without quotes"),
    "float_type": ("a number", "Write a number without quotes"),
    "bool_type": ("true or false", "Write true or false"),
    "dict_type": ("a mapping", "Write 'key: value' lines below it"),
    "model_type": ("a mapping", "Write 'key: value' lines below it"),
    "model_attributes_type": ("a mapping", "Write 'key: value' lines below it"),
    "list_type": ("a list", "Write [a, b, c]"),
}
_BOUNDS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}


def check_shape(
    model: type[Model], values: Any, *, at: KeyPath = (), lines: Mapping[KeyPath, int]
) -> tuple[Model | None, list[SpecProblem]]:
    """Validates a mapping against a model.

    Args:
        model: The keys that are legal here.
        values: What the spec says.
        at: Where in the spec the mapping stands.
        lines: Line by path.

    Returns:
        The model (None when there are problems), and all problems.
    """
    try:
        return model.model_validate(values), []
    except ValidationError as error:
        return None, [_problem(model, detail, at, lines) for detail in error.errors(include_url=False)]


def line_of(path: KeyPath, lines: Mapping[KeyPath, int]) -> int | None:
    """The line of a key, else of the nearest key above it that has one; None for a key that is not in the file."""
    places = (path[:length] for length in range(len(path), -1, -1))
    return next((lines[place] or None for place in places if place in lines), None)


def _problem(model: type[Keys], detail: Any, at: KeyPath, lines: Mapping[KeyPath, int]) -> SpecProblem:
    inner = tuple(part for part in detail["loc"] if not str(part).startswith(("function-", "list[", "str", "dict[")))
    path = (*at, *inner)
    if detail["type"] == "extra_forbidden":
        reason, fix = _unknown(model, inner)
    else:
        reason, fix = _reason(detail, inner)
    return SpecProblem(where=dotted(path), reason=reason, fix=fix, line=line_of(path, lines))


def _unknown(model: type[Keys], inner: KeyPath) -> tuple[str, str]:
    known = tuple(keys_at(model, inner[:-1]))
    word = str(inner[-1])
    other = OTHER_WORDS.get(word)
    fix = f"Did you mean {other!r}?" if other in known else nearest_fix(word, known)
    return f"unknown key {word!r}", fix


def keys_at(model: type[Keys], path: KeyPath) -> tuple[str, ...]:
    """The legal keys of a model's mapping at a path inside it."""
    found: Any = model
    for part in path:
        annotation = found.model_fields[str(part)].annotation
        options = (annotation, *getattr(annotation, "__args__", ()))
        found = next(option for option in options if isinstance(option, type) and issubclass(option, Keys))
    return tuple(found.model_fields)


def _reason(detail: Any, inner: KeyPath) -> tuple[str, str]:
    kind, given, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "tightfit":
        return context["reason"], context["fix"]
    if kind == "missing":
        return f"the key {str(inner[-1])!r} is missing", f"Add '{inner[-1]}: ...'"
    if kind in _KINDS:
        wanted, fix = _KINDS[kind]
        if kind == "int_type" and isinstance(given, float):
            fix = "Write a whole number without a point"
        return f"{shown(given)} is not {wanted}", fix
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return f"{shown(given)} is out of range", f"Use a number {words} {context[key]}"
    if kind == "finite_number":
        return f"{shown(given)} is not a finite number", "Write an ordinary number"
    return f"{shown(given)} cannot be used: {detail['msg'].lower()}", "See the reference of spec keys"


def shown(value: Any) -> str:
    """A value as it stands in a message: short, and with the words YAML uses."""
    if value is None:
        return "an empty value"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
