"""The doors to a study's confirmation done again: in our own loop, and in somebody else's trainer."""

from __future__ import annotations

from typing import Any

from tuner.api import Result, longer, show
from tuner.progress import OnProgress
from tuner.stop import Stop


def confirm(name: str, *, on_progress: OnProgress | None = None, stop: Stop | None = None) -> Result:
    """Confirms a study again on this machine, from nothing: the old confirmation stops counting once that is done.

    Raises:
        StudyError: There is no such study, it has nothing to confirm, or another process works on it.
        TightfitError: It was measured on another kind of device, was stopped, or could not be confirmed.
    """
    from tuner.work.renewing import renew

    with longer(name, on_progress, stop) as bench:
        renew(bench)
    return show(name)


def confirm_in_trainer(
    name: str,
    trainer: str,
    *,
    steps: int | None = None,
    on_progress: OnProgress | None = None,
    stop: Stop | None = None,
) -> dict[str, Any]:
    """Runs the winner's exported files in the real trainer (docs/reference.md lists the fields).

    Args:
        name: The study.
        trainer: ``hf-trainer`` or ``lightning``.
        steps: Optimizer steps that are timed; None for about ten seconds of them.
        on_progress: Takes progress.
        stop: Asks for the end from elsewhere.

    Raises:
        StudyError: There is no such study or trainer, it has no winner, or another process works on it.
        ExportRefused: The trainer cannot hold the winner.
        TightfitError: The trainer is not installed, or its run failed.
    """
    from tuner.work.in_trainer import confirm_in_trainer as work
    from tuner.work.in_trainer import require_trainer

    require_trainer(trainer)
    with longer(name, on_progress, stop) as bench:
        return work(bench, trainer, steps)
