"""Plain data as the text of a file: JSON, YAML that 1.1 and 1.2 parsers read alike, shell. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any


def json_text(values: Mapping[str, Any]) -> str:
    """Standard JSON, two spaces deep, in the order given."""
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def yaml_text(values: Mapping[str, Any], *, remark: str = "") -> str:
    """One key a line; every value as JSON, which YAML 1.1 and 1.2 read alike (``no`` and ``off`` stay words).

    Args:
        values: Plain data, in the order it is written.
        remark: Comment lines for the head of the file.
    """
    head = [f"# {line}".rstrip() for line in remark.splitlines()]
    return "\n".join([*head, *(f"{name}: {_scalar(value)}" for name, value in values.items())]) + "\n"


def _scalar(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(name)}: {_scalar(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, float):
        return _float(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _float(value: float) -> str:
    """With a point: YAML 1.1 reads ``1e-05`` as text and ``1.0e-05`` as a number."""
    text = repr(value)
    mantissa, e, exponent = text.partition("e")
    return text if "." in mantissa else f"{mantissa}.0{e}{exponent}"


def exports(environment: Mapping[str, str]) -> list[str]:
    """``export NAME=value`` lines for a POSIX shell."""
    return [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
