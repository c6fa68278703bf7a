"""``tuner export`` for people: the files, and beside them what they hold and what they could not hold."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tuner.cli.outcome import writing
from tuner.export.notes import PAGE


def print_export(document: Mapping[str, Any]) -> None:
    """The texts on stdout (a single one bare, so that it can be piped), everything about them on stderr."""
    _out(_files(document))
    about = [f"for {document['target']}"]
    about += [f"wrote {path}" for path in document["written"]]
    about += [f"note: {each}" for each in document["notes"]]
    about += [_left(each) for each in document["not_carried"]]
    sys.stderr.write("".join(f"{line}\n" for line in about))


def _files(document: Mapping[str, Any]) -> str:
    if document["diff"] is not None:
        return _diff(document["diff"])
    if document["written"]:
        return ""
    files = document["files"]
    if len(files) == 1:
        return str(next(iter(files.values())))
    shown = [(name, text) for name, text in files.items() if name != PAGE]
    return "\n".join(f"==> {name} <==\n{text}" for name, text in shown)


def _left(each: Mapping[str, Any]) -> str:
    code = "".join(f"\n    {line}" for line in each["code"])
    return f"not in the files: {each['knob']} {each['value']}: {each['reason']}{code}"


def _diff(diff: Mapping[str, Any]) -> str:
    marks = {"same": " ", "differs": "~", "only_yours": "-", "only_exported": "+"}
    width = max((len(line["key"]) for line in diff["keys"]), default=0)
    lines = [f"{marks[line['state']]} {line['key']:<{width}}  {_values(line)}" for line in diff["keys"]]
    problems = [f"! {each['key']}: {each['reason']}" for each in diff["problems"]]
    head = ["(~ differs, - only yours, + only exported, ! a problem of yours)"]
    return "\n".join([*head, *lines, *problems]) + "\n"


def _values(line: Mapping[str, Any]) -> str:
    if line["state"] == "differs":
        return f"{line['yours']!r} -> {line['exported']!r}"
    return repr(line["exported"] if line["state"] == "only_exported" else line["yours"])


def _out(text: str) -> None:
    with writing():
        sys.stdout.write(text)
        sys.stdout.flush()
