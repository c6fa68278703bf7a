"""Progress of ``tuner.tune``: a bar on a terminal and in a notebook (no widgets needed), plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tuner.cli.display import Seen, display, told
from tuner.cli.words import rate
from tuner.progress import Confirming, OnProgress, Progress, StudyEnded, TrialStarted, ignore

REFRESH_SECONDS = 0.25
WIDTH = 30


@contextmanager
def watching(*, shown: bool) -> Iterator[OnProgress]:
    """Takes progress while the block runs.

    Args:
        shown: False shows nothing.
    """
    if not shown:
        yield ignore
        return
    if (handle := _notebook()) is not None:
        yield Bar(handle)
        return
    if sys.stderr.isatty():
        with _terminal() as draw:
            yield Bar(draw)
        return
    with display(sys.stderr) as on_progress:
        yield on_progress


class Bar:
    """Turns facts into a share and a line; draws them at most four times a second.

    Args:
        draw: Takes the share done (0 to 1) and the line beside the bar.
    """

    def __init__(self, draw: Callable[[float, str], None]) -> None:
        self._draw, self._seen, self._drawn_at, self.share = draw, Seen(), float("-inf"), 0.0

    def __call__(self, progress: Progress) -> None:
        """Takes one fact in."""
        line = told(self._seen, progress)
        self._seen.take(progress, time.monotonic())
        self._move(progress)
        now = time.monotonic()
        if line is not None or now - self._drawn_at >= REFRESH_SECONDS:
            self._drawn_at = now
            self._draw(self.share, self.line())

    def _move(self, progress: Progress) -> None:
        most = self._seen.study.trials if self._seen.study else 0
        if isinstance(progress, TrialStarted) and progress.purpose == "search" and most:
            self.share = max(self.share, 0.75 * progress.number / most)
        elif isinstance(progress, Confirming):
            self.share = max(self.share, 0.75 + 0.25 * (progress.round - 1) / max(progress.rounds, 1))
        elif isinstance(progress, StudyEnded):
            self.share = 1.0

    def line(self) -> str:
        """What happens now, and the best so far."""
        seen = self._seen
        now = seen.doing if seen.trial is None else f"trial {seen.trial.number} ({seen.trial.purpose})"
        if seen.confirming is not None:
            now = f"confirming, round {seen.confirming.round} of {seen.confirming.rounds}"
        now = "done" if self.share >= 1.0 else now
        best = "" if seen.best is None else f", best {rate(seen.best.throughput, seen.best.unit)}"
        return f"{now}{best}"


def _notebook() -> Callable[[float, str], None] | None:
    """Draws into one output cell that is updated in place; None outside a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display as show

    handle: Any = show({"text/plain": ""}, raw=True, display_id=True)

    def draw(share: float, line: str) -> None:
        filled = round(WIDTH * share)
        handle.update({"text/plain": f"[{'#' * filled}{'.' * (WIDTH - filled)}] {share:.0%} {line}"}, raw=True)

    return draw


@contextmanager
def _terminal() -> Iterator[Callable[[float, str], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        BarColumn(WIDTH),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Bars(*columns, console=Console(file=sys.stderr), transient=True, redirect_stdout=False) as bars:
        task = bars.add_task("starting", total=1.0)
        yield lambda share, line: bars.update(task, completed=share, description=line)
