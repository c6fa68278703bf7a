"""``tuner init``: files in, a spec and everything that is wrong with the files out."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tuner.export.documents import write_files
from tuner.imports import read_all
from tuner.imports.imported import Imported
from tuner.imports.models import beside
from tuner.imports.source import ImportRefused, Source, source_of, sources
from tuner.imports.spec_text import draft
from tuner.spec.keys import LONGEST_NAME


def init(
    paths: tuple[Path, ...],
    *,
    format_name: str | None = None,
    world_size: int | None = None,
    study: str | None = None,
    output: Path | None = None,
) -> dict[str, Any]:
    """A spec whose baseline is an existing training configuration (docs/reference.md lists the fields).

    Args:
        paths: Files of one job, or folders with them.
        format_name: Of :data:`tuner.imports.NAMES`; None recognises each file by its keys.
        world_size: Data-parallel ranks of the job; None takes what the files say, else 1.
        study: The study's name; None takes it from the output's, else from the first file's.
        output: File to write; one with other content is never overwritten. None writes nothing.

    Raises:
        ImportRefused: A file cannot be read, or no format is recognised in it.
        ExportRefused: The output exists and says something else, or cannot be written.
    """
    if world_size is not None and world_size < 1:
        raise ImportRefused(f"a world size of {world_size} is no number of ranks: write 1 or more")
    given = sources(paths)
    given = (*given, *_named_by(given))
    imported = read_all(given, format_name, world_size)
    name = study or _study_name(paths[0] if output is None else output)
    made = draft(imported, study=name, origin=", ".join(dict.fromkeys(each.path.name for each in given)))
    written = [] if output is None else write_files(output.parent, {output.name: made.text})
    return {
        "study": name,
        "format": imported.format,
        "files": [str(each.path) for each in given],
        "spec": made.text,
        "fill_in": [asdict(each) for each in made.places],
        "baseline": dict(imported.knobs),
        "uncertain": dict(imported.uncertain),
        "global_batch_size": imported.global_batch_size,
        "world_size": imported.ranks,
        "problems": [asdict(each) for each in imported.problems],
        "notes": list(imported.notes),
        "left": list(imported.left),
        "written": written,
    }


def _named_by(given: tuple[Source, ...]) -> tuple[Source, ...]:
    """The DeepSpeed files that the others name and that lie where they say; one that is missing is passed over."""
    known = {each.path.resolve() for each in given}
    found: list[Source] = []
    for source in given:
        name = source.values.get("deepspeed")
        path = beside(source.path, name) if isinstance(name, str) else None
        if path is not None and path.is_file() and path.resolve() not in known:
            known.add(path.resolve())
            found.append(source_of(path))
    return tuple(found)


def _study_name(path: Path) -> str:
    """From the file's or folder's name: printable, without its ending."""
    stem = path.resolve().name if path.is_dir() else path.stem
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.")[:LONGEST_NAME] or "imported"


def imported_from(paths: tuple[Path, ...], *, world_size: int | None = None) -> Imported:
    """What the files say in our words, without a spec. Raises as :func:`init`."""
    given = sources(paths)
    return read_all((*given, *_named_by(given)), None, world_size)
