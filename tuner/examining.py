"""A study's longer runs on this machine: ``verify``, ``soak``, ``profile``. Nothing of them is a measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuner.api import longer

if TYPE_CHECKING:
    from tuner.progress import OnProgress
    from tuner.stop import Stop


def verify(name: str, *, on_progress: OnProgress | None = None, stop: Stop | None = None) -> dict[str, Any]:
    """Compares the winner's gradient with that of another split of the same batch, and its loss curve.

    Raises:
        StudyError: There is no such study, it has no winner, or another process works on it.
        TightfitError: The run failed; the message says why.
    """
    from tuner.work.verifying import verify as work

    with longer(name, on_progress, stop) as bench:
        return work(bench)


def soak(
    name: str,
    *,
    minutes: float = 10.0,
    remedies: bool = True,
    on_progress: OnProgress | None = None,
    stop: Stop | None = None,
) -> dict[str, Any]:
    """Runs the winner for minutes with changing lengths and evaluation breaks, and says how its memory grows.

    Args:
        name: The study.
        minutes: Of the plain run; each remedy that is tried adds a third of it.
        remedies: Whether remedies are tried where memory grows or sits near the limit.
        on_progress: Takes progress.
        stop: Asks for the end.

    Raises:
        StudyError: There is no such study, it has no winner, or another process works on it.
        TightfitError: The run failed; the message says why.
    """
    from tuner.work.soaking import soak as work

    with longer(name, on_progress, stop) as bench:
        return work(bench, minutes=minutes, remedies=remedies)


def profile(
    name: str,
    *,
    trial: int | None = None,
    tool: str = "torch",
    on_progress: OnProgress | None = None,
    stop: Stop | None = None,
) -> dict[str, Any]:
    """Runs some steps of a trial's configuration under a tool; never a measurement.

    Args:
        name: The study.
        trial: Its number; None for the winner.
        tool: ``torch``, ``memory``, ``nsys`` or ``ncu``.
        on_progress: Takes progress.
        stop: Asks for the end.

    Raises:
        StudyError: There is no such study or trial, or another process works on it.
        TightfitError: The tool is missing (the message says how to get it), or the run failed.
    """
    from tuner.work.profiling import profile as work

    with longer(name, on_progress, stop) as bench:
        return work(bench, number=trial, tool=tool)
