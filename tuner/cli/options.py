"""What the commands share: two options, and how an answer is printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from tuner.cli.outcome import writing


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--json`` as the argument ``as_json``."""
    text = "Print one JSON document on stdout and nothing else there."
    return click.option("--json", "as_json", is_flag=True, help=text)(function)


def debug_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--debug``, which the last stop before a person looks for."""
    text = "Show the traceback of an error."
    return click.option("--debug", is_flag=True, expose_value=False, help=text)(function)


def answer(document: Mapping[str, Any], *, as_json: bool, show: Callable[[Mapping[str, Any]], None]) -> None:
    """Prints a document, or shows it to a person."""
    if as_json:
        print_document(document)
    else:
        show(document)


def print_document(document: Mapping[str, Any]) -> None:
    """One JSON document of standard JSON (no NaN) on stdout."""
    with writing():
        print(json.dumps(document, allow_nan=False, ensure_ascii=False), file=sys.stdout, flush=True)
