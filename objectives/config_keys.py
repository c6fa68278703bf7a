"""Keys of a model's configuration that its class does not know: transformers keeps them, and nothing reads them."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from objectives.contract import ObjectiveError


def require_known_keys(config: Any, given: Mapping[str, Any], where: str = "objective.model.config") -> None:
    """Refuses misspelt keys of a configuration made from a spec.

    A key is known when it is a field, an alias or a property of the class, when the class consumes it (older names), or
    when the model's own code reads it from the configuration.

    Args:
        config: The transformers configuration made of them.
        given: The spec's keys, without ``model_type``; nested ones of parts (``text_config``) are looked at too.
        where: Path of the keys in the spec.

    Raises:
        ObjectiveError: For the first unknown key, with the nearest known one.
    """
    for name in given:
        if name != "model_type" and _is_unknown(config, name):
            raise ObjectiveError(f"{where}.{name}: {_kind(config)} has no such key{_nearest(config, name)}")
    for name, part, inner in _parts(config, given):
        require_known_keys(part, inner, f"{where}.{name}")


def _parts(config: Any, given: Mapping[str, Any]) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    for name, value in given.items():
        part = getattr(config, name, None)
        if isinstance(value, Mapping) and hasattr(part, "to_dict") and hasattr(part, "model_type"):
            yield name, part, value


def _is_unknown(config: Any, name: str) -> bool:
    kept = name in vars(config)
    return kept and name not in _known(type(config)) and not _is_read(type(config), name)


def _known(cls: type) -> set[str]:
    """Fields, aliases, properties and methods."""
    own = {field.name for field in fields(cls)} if is_dataclass(cls) else set[str]()
    return own | {*getattr(cls, "attribute_map", {})} | {*dir(cls)}


def _is_read(cls: type, name: str) -> bool:
    """Whether the model's code mentions the key as one of its configuration, or the configuration classes at all."""
    if re.search(
        rf"\bconfig\.{re.escape(name)}\b|getattr\([\w.]*config, *[\"']{re.escape(name)}[\"']", _model_code(cls)
    ):
        return True
    return re.search(rf"\b{re.escape(name)}\b", _config_code(cls)) is not None


@cache
def _model_code(cls: type) -> str:
    folder = Path(_file(cls)).parent
    return "\n".join(file.read_text(encoding="utf-8") for file in sorted(folder.glob("modeling_*.py")))


@cache
def _config_code(cls: type) -> str:
    """The sources of the class and of those it inherits from, docstrings included: they name what is accepted."""
    files = {_file(each) for each in cls.__mro__ if each.__module__.startswith("transformers.")}
    return "\n".join(Path(file).read_text(encoding="utf-8") for file in sorted(files))


def _file(cls: type) -> str:
    return str(sys.modules[cls.__module__].__file__)


def _nearest(config: Any, name: str) -> str:
    cls = type(config)
    own = {field.name for field in fields(cls)} if is_dataclass(cls) else set(vars(cls()))
    names = sorted(own | {*getattr(cls, "attribute_map", {})} | {"num_labels"})
    words = set(name.split("_"))
    longer = [each for each in names if words <= set(each.split("_"))]  # num_layers means num_hidden_layers
    close = difflib.get_close_matches(name, longer or names, n=1, cutoff=0.5)
    return f". Did you mean `{close[0]}`? Else remove it" if close else f": remove it. Its keys: {', '.join(names)}"


def _kind(config: Any) -> str:
    return str(getattr(config, "model_type", "") or type(config).__name__)
