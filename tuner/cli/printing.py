"""The few pieces every printout is made of. No text from a study is ever taken for markup."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tuner.cli.outcome import ReaderLeftError, writing


def table(
    out: Console,
    head: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    right: Sequence[str] = (),
    wrapped: Sequence[str] = (),
) -> None:
    """Columns without lines; those named in ``right`` are aligned there, ``wrapped`` ones and the last may wrap."""
    made = Table(box=None, show_header=any(head), header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for name in head:
        whole = name not in (*wrapped, head[-1])
        made.add_column(name, justify="right" if name in right else "left", no_wrap=whole, overflow="fold")
    for row in rows:
        made.add_row(*map(Text, row))
    out.print(made)


def title(out: Console, text: str) -> None:
    """A heading, after an empty line."""
    line(out, f"\n{text}", style="bold")


def line(out: Console, text: str, style: str = "") -> None:
    """One line of plain text: nothing in it is markup."""
    out.print(text, style=style, markup=False, highlight=False)


def console() -> Console:
    """Standard output."""
    return _Output(file=sys.stdout, highlight=False)


class _Output(Console):
    def print(self, *objects: Any, **options: Any) -> None:
        with writing():
            super().print(*objects, **options)

    def on_broken_pipe(self) -> NoReturn:
        """The command decides what a reader that left means; rich would exit with 1."""
        raise ReaderLeftError
