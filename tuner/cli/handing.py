"""``tuner init``, ``tuner lookup`` and ``tuner confirm --with`` for people."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tuner.cli import words
from tuner.cli.outcome import writing
from tuner.cli.printing import console, line, table, title

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


def print_lookup(document: Document) -> None:
    """The answer with what is different and what has changed since; or that there is none."""
    out, found = console(), document["answer"]
    if found is None:
        line(out, "Nothing comes near: no study in this store has confirmed a configuration for that.", style="bold")
        return
    how = "Exactly this was measured" if found["exact"] else "The nearest that was measured"
    title(out, f"{how}: {found['study']}, trial {found['trial']}")
    table(out, ("", ""), [(name, words.value(value)) for name, value in found["config"].items()])
    for text in _lookup_facts(found):
        line(out, text)
    for other in document["others"]:
        line(out, f"also: {other['study']}, trial {other['trial']} ({'; '.join(other['differences']) or 'the same'})")


def _lookup_facts(found: Document) -> Iterator[str]:
    yield from (f"differs: {each}" for each in found["differences"])
    speed = words.rate(found["throughput"], found["throughput_unit"])
    where = f"on {found['device']}, needs {words.size(found['peak_memory_bytes'])}"
    yield f"{speed} {where}" if found["throughput"] is not None else f"measured {where}"
    if found["found_under_cap"]:
        yield f"found under a memory cap of {words.size(found['memory_limit_bytes'])} on a larger card"
    if found["stale"]:
        yield f"stale: {'; '.join(found['stale'])}. `{found['renew']}` measures it again"
    elif found["stale"] is None:
        yield "whether it is stale cannot be judged here: this is another machine than it was measured on"


def print_in_trainer(document: Document) -> None:
    """The trainer beside the study, and where its time went."""
    out, unit, seconds = console(), document["throughput_unit"], document["seconds"]
    title(out, f"{document['study']}, trial {document['trial']}, in {document['trainer']}: {document['steps']} steps")
    interval = words.interval(document["study_interval"])
    rows = [
        (document["trainer"], words.rate(document["throughput"], unit), words.size(document["peak_memory_bytes"])),
        ("the study's own loop, now", words.rate(document["own_loop_throughput"], unit), words.NOTHING),
        (
            "the study",
            f"{words.rate(document['study_throughput'], unit)} {interval}",
            words.size(document["study_peak_memory_bytes"]),
        ),
    ]
    table(out, ("", "throughput", "peak memory"), rows)
    parts = ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items() if value is not None)
    line(out, f"time: {parts} (trainer: its own work between and around the rest)")
    each = ", ".join(map(str, document["micro_batches_per_step"]))
    line(out, f"{document['samples_per_step']} samples per optimizer step, in micro-batches: {each}")
    if not document["as_exported"]:
        line(out, "That is not what was exported.", style="bold red")
    for one in document["in_code"]:
        line(out, f"in code, as the notes say: {one['knob']} {words.value(one['value'])}")
    line(out, document["verdict"], style="bold")
