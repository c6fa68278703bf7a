"""``tuner init`` for people: the spec on stdout, everything about it on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tuner.cli.outcome import writing

Document = Mapping[str, Any]


def print_init(document: Document) -> None:
    """The spec bare, so that it can be redirected; where it was written to a file, its name."""
    with writing():
        sys.stdout.write("" if document["written"] else document["spec"])
        sys.stdout.flush()
    sys.stderr.write("".join(f"{line}\n" for line in _about(document)))


def _about(document: Document) -> Iterator[str]:
    yield f"read as {document['format']}: {', '.join(document['files'])}"
    yield from (f"wrote {path}" for path in document["written"])
    yield from (_problem(each) for each in document["problems"])
    yield from (f"check {knob}: {why}" for knob, why in document["uncertain"].items())
    yield from (f"note: {each}" for each in document["notes"])
    if document["left"]:
        yield f"not needed for a study: {', '.join(document['left'])}"
    yield from (f"fill in {each['where']}: {each['what']}" for each in document["fill_in"])


def _problem(each: Document) -> str:
    place = ":".join(str(part) for part in (each["file"], each["line"]) if part)
    return f"problem: {place + ': ' if place else ''}{each['key']}: {each['reason']}"
