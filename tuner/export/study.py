"""From a study's rows to the document of ``tuner export``: choose, derive, write, compare."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.answer.summary import StudyView
from tuner.export import TABLE, export, format_named, table
from tuner.export.choose import choose
from tuner.export.diff import compare
from tuner.export.documents import document, read_config, write_files
from tuner.export.handover import ExportRefused, for_ranks


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What was asked for; the fields are those of :func:`tuner.api.export`."""

    to: str
    pick: str = "fastest"
    memory: str | None = None
    world_size: int | None = None
    output: Path | None = None
    diff: Path | None = None


def export_study(view: StudyView, wish: Wish) -> dict[str, Any]:
    """The document; files are written last, when nothing can be refused any more.

    Raises:
        ExportRefused: As :func:`tuner.api.export`.
    """
    told = _table(view, wish) if wish.to == TABLE else _configuration(view, wish)
    if wish.output is not None:
        told["written"] = write_files(wish.output, told["files"])
    return told


def _configuration(view: StudyView, wish: Wish) -> dict[str, Any]:
    target = format_named(wish.to)
    handover = choose(view, wish.pick, wish.memory)
    handover = for_ranks(handover, handover.ranks if wish.world_size is None else wish.world_size)
    made = export(handover, target)
    told = document(made, study=handover.study, trial=handover.trial, name=target.name, target=target.target)
    if wish.diff is not None:
        told["diff"] = compare(read_config(wish.diff), made.values, target.name, handover).to_json()
    return told


def _table(view: StudyView, wish: Wish) -> dict[str, Any]:
    asked = {"--memory": wish.memory, "--world-size": wish.world_size, "--diff": wish.diff}
    given = [name for name, value in asked.items() if value is not None]
    if given or wish.pick != "fastest":
        raise ExportRefused(f"a table holds the whole study: leave out {', '.join([*given, '--pick'][:1])}")
    return document(table.write(view), study=view.study.name, trial=None, name=TABLE, target=table.TARGET)
