"""Live progress on stderr: a few lines that stay in place on a terminal, one plain line per fact elsewhere."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TextIO

from tuner.cli import words
from tuner.progress import (
    Best,
    Confirming,
    Notice,
    OnProgress,
    Preparing,
    Progress,
    StepSeen,
    StudyEnded,
    StudyStarted,
    TrialEnded,
    TrialStarted,
    ignore,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

BAR_WIDTH = 20


@dataclass(kw_only=True)
class Seen:
    """What has been seen so far: all that the screen shows. Pure.

    Attributes:
        doing: What happens when no trial runs.
        ends_at: ``time.monotonic()`` at which the time limit is reached; None without one.
        unit: Of the study's throughput, once a trial has said it.
    """

    study: StudyStarted | None = None
    doing: str = "starting"
    trial: TrialStarted | None = None
    step: StepSeen | None = None
    best: Best | None = None
    confirming: Confirming | None = None
    ends_at: float | None = None
    unit: str | None = None
    configs: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def baseline(self) -> Mapping[str, Any]:
        """The baseline's configuration; empty before it is known."""
        return (self.study.baseline if self.study else {}) or self.configs.get(0, {})

    def take(self, progress: Progress, now: float) -> None:
        """Takes one fact in. ``now`` is ``time.monotonic()``."""
        seconds_left = getattr(progress, "seconds_left", None)
        if seconds_left is not None:
            self.ends_at = now + seconds_left
        if isinstance(progress, StudyStarted):
            self.study = progress
        elif isinstance(progress, TrialStarted):
            self.trial, self.step = progress, None
            self.configs[progress.number] = progress.config
        elif isinstance(progress, StepSeen):
            self.step = replace(progress, unit=progress.unit or self.unit)
        else:
            self._take_rest(progress)

    def _take_rest(self, progress: Progress) -> None:
        self.unit = getattr(progress, "unit", None) or self.unit
        if isinstance(progress, TrialEnded):
            self.trial = self.step = None
            self.doing = "choosing the next configuration"
        elif isinstance(progress, Best):
            self.best = progress
        elif isinstance(progress, Confirming):
            self.confirming = progress
        elif isinstance(progress, Preparing):
            self.doing = progress.text


@contextmanager
def display(stream: TextIO, *, quiet: bool = False) -> Iterator[OnProgress]:
    """Shows progress on a stream while the block runs.

    Args:
        stream: Where to, normally stderr.
        quiet: Nothing is shown.
    """
    if quiet:
        yield ignore
        return
    from rich.console import Console

    console = Console(file=stream, highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        seen = Seen()
        yield lambda progress: _plain(stream, seen, progress)
        return
    with _live(console) as on_progress:
        yield on_progress


@contextmanager
def _live(console: Console) -> Iterator[OnProgress]:
    from rich.live import Live

    seen = Seen()
    with Live(
        get_renderable=lambda: screen(seen, time.monotonic(), console.width),
        console=console,
        refresh_per_second=4,
        transient=True,
        redirect_stdout=False,
    ) as live:

        def on_progress(progress: Progress) -> None:
            line = told(seen, progress)
            seen.take(progress, time.monotonic())
            if line is not None:
                live.console.print(_folded(line, console.width), style=_style(progress), markup=False)

        yield on_progress


def _plain(stream: TextIO, seen: Seen, progress: Progress) -> None:
    line = told(seen, progress) or _plain_only(seen, progress)
    seen.take(progress, time.monotonic())
    if line is not None:
        with suppress(OSError, ValueError):  # a reader that left must not end the study
            print(" ".join(line.splitlines()), file=stream, flush=True)


def _folded(line: str, width: int, indent: str = "") -> str:
    """The line folded at words, what follows indented below it."""
    return textwrap.fill(line, max(width, 40), initial_indent=indent, subsequent_indent=indent + " " * 10)


def told(seen: Seen, progress: Progress) -> str | None:
    """The line a fact leaves behind on any stream; None for those that only move the live lines."""
    if isinstance(progress, TrialEnded):
        return _ended(seen, progress)
    if isinstance(progress, Best):
        return None if seen.best == progress else _best(progress)
    if isinstance(progress, StudyStarted):
        return _started(progress)
    if isinstance(progress, Notice):
        return f"note: {progress.text}"
    if isinstance(progress, StudyEnded):
        why = None if progress.status == "failed" else progress.stop_reason  # the error, or the answer, says it next
        return f"{progress.study}: {progress.status}" + (f", {why}" if why else "")
    return None


def _plain_only(seen: Seen, progress: Progress) -> str | None:
    """Lines that a live screen shows in place."""
    if isinstance(progress, Preparing):
        return progress.text
    if isinstance(progress, TrialStarted) and progress.purpose != "confirm":
        of = f" of at most {seen.study.trials}" if seen.study and progress.purpose == "search" else ""
        return f"trial {progress.number}{of} ({progress.purpose}): {_knobs(seen, progress.config)}"
    if isinstance(progress, Confirming):
        return f"confirmation, round {progress.round} of {progress.rounds}: trial {progress.number}"
    return None


def _started(progress: StudyStarted) -> str:
    limit = words.size(progress.memory_limit_bytes) if progress.memory_limit_bytes else "none"
    done = f", {progress.trials_done} trials already done" if progress.trials_done else ""
    return f"{progress.study}: {progress.objective} on {progress.device}, memory limit {limit}{done}"


def _ended(seen: Seen, progress: TrialEnded) -> str:
    what = progress.outcome + (f" ({progress.cause})" if progress.cause else "")
    measured = words.rate(progress.throughput, progress.unit)
    if progress.outcome == "pruned" and progress.throughput is not None:
        measured = f"at most {measured}"
    parts = [what, measured, words.size(progress.peak_memory_bytes), words.duration(progress.seconds)]
    head = f"trial {progress.number:>2}  " + "  ".join(part for part in parts if part != words.NOTHING)
    purpose = f"{progress.purpose}: " if progress.purpose != "search" else ""
    tail = progress.message or _knobs(seen, seen.configs.get(progress.number, {}))
    return f"{head}  {purpose}{tail}" if tail else head


def _best(progress: Best) -> str:
    speedup = f", {words.times(progress.speedup)} the baseline" if progress.speedup is not None else ""
    return f"best so far: trial {progress.number}, {words.rate(progress.throughput, progress.unit)}{speedup}"


def _knobs(seen: Seen, config: Mapping[str, Any]) -> str:
    return (words.knobs(config, seen.baseline) or "as the baseline") if config else ""


def _style(progress: Progress) -> str:
    if isinstance(progress, Best):
        return "bold green"
    if isinstance(progress, Notice) or (isinstance(progress, TrialEnded) and progress.outcome != "completed"):
        return "yellow"
    return ""


def screen(seen: Seen, now: float, width: int) -> RenderableType:
    """The lines that stay in place, for a terminal.

    Args:
        seen: What has been seen so far.
        now: ``time.monotonic()``.
        width: Columns of the terminal.
    """
    from rich.text import Text

    lines = [_where(seen, now), *_trial_lines(seen, width)]
    if seen.best is not None:
        lines.append(_best(seen.best))
    return Text("\n".join(lines), style="cyan", no_wrap=True, overflow="ellipsis")


def _where(seen: Seen, now: float) -> str:
    left = f"  {words.duration(seen.ends_at - now)} left" if seen.ends_at is not None else ""
    if seen.confirming is not None:
        what = seen.confirming
        return f"confirming: round {what.round} of {what.rounds}, trial {what.number}{left}"
    if seen.trial is None:
        return f"{seen.doing}{left}"
    of = f" of at most {seen.study.trials}" if seen.study else ""
    return f"trial {seen.trial.number}{of} ({seen.trial.purpose}){left}"


def _trial_lines(seen: Seen, width: int) -> list[str]:
    if seen.trial is None:
        return []
    return [_folded(_knobs(seen, seen.trial.config), width, "  "), f"  {_step(seen)}"]


def _step(seen: Seen) -> str:
    step = seen.step
    if step is None:
        return "starting"
    parts = [step.phase.replace("_", " "), f"step {step.steps}" if step.steps else ""]
    parts += [words.rate(step.rate, step.unit) if step.rate is not None else "", _memory(step)]
    return "  ".join(part for part in parts if part)


def _memory(step: StepSeen) -> str:
    if step.memory_bytes is None:
        return ""
    if not step.limit_bytes:
        return words.size(step.memory_bytes)
    filled = min(BAR_WIDTH, round(BAR_WIDTH * step.memory_bytes / step.limit_bytes))
    bar = "#" * filled + "." * (BAR_WIDTH - filled)
    return f"{words.size(step.memory_bytes)} of {words.size(step.limit_bytes)} [{bar}]"
