"""What progress looks like, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from objectives.config import TrainingConfig
from tuner.cli.display import Seen, display, screen
from tuner.progress import (
    Best,
    Confirming,
    Notice,
    Preparing,
    Progress,
    StepSeen,
    StudyEnded,
    StudyStarted,
    TrialEnded,
    TrialStarted,
)

BASE = TrainingConfig(micro_batch_size=4, accumulation_steps=8).to_mapping()
OTHER = TrainingConfig(micro_batch_size=8, accumulation_steps=4, precision="bf16-mixed").to_mapping()
UNIT = "tokens_per_second"
STARTED = StudyStarted(
    study="quickstart", objective="causal_lm", device="Xeon", sampler="auto", trials=40,
    memory_limit_bytes=8 * 2**30, baseline=BASE, seconds_left=200.0,
)  # fmt: skip
FACTS: tuple[Progress, ...] = (
    Preparing(text="reading the data"),
    STARTED,
    TrialStarted(number=0, config=BASE),
    StepSeen(number=0, steps=3, rate=1200.0, unit=UNIT, memory_bytes=2**30, limit_bytes=8 * 2**30),
    TrialEnded(number=0, outcome="completed", throughput=1204.0, unit=UNIT, peak_memory_bytes=2**31, seconds=12.0),
    TrialStarted(number=1, config=OTHER),
    TrialEnded(number=1, outcome="device_oom", cause="cap", seconds=3.0, message="needs more\nthan 8 GiB"),
    Best(number=0, throughput=1204.0, unit=UNIT, speedup=1.0),
    Best(number=0, throughput=1204.0, unit=UNIT, speedup=1.0),
    Notice(text="the device [x] is in use"),
    Confirming(round=1, rounds=3, number=0),
    TrialStarted(number=0, config=BASE, purpose="confirm"),
    StudyEnded(study="quickstart", status="finished", stop_reason="no gain"),
)


def test_elsewhere_each_fact_is_one_plain_line() -> None:
    stream = io.StringIO()
    with display(stream) as on_progress:
        for fact in FACTS:
            on_progress(fact)
    assert stream.getvalue().splitlines() == [
        "reading the data",
        "quickstart: causal_lm on Xeon, memory limit 8.00 GiB",
        "trial 0 of at most 40 (search): as the baseline",
        "trial  0  completed  1.20k tokens/s  2.00 GiB  12 s  as the baseline",
        "trial 1 of at most 40 (search): micro_batch_size 8, precision bf16-mixed",
        "trial  1  device_oom (cap)  3 s  needs more than 8 GiB",
        "best so far: trial 0, 1.20k tokens/s, 1.00x the baseline",
        "note: the device [x] is in use",
        "confirmation, round 1 of 3: trial 0",
        "quickstart: finished, no gain",
    ]


def test_a_failure_is_told_once_by_the_error_or_the_answer_that_follows() -> None:
    stream = io.StringIO()
    with display(stream) as on_progress:
        on_progress(StudyEnded(study="s", status="failed", stop_reason="objective.data.path: no folder"))
        on_progress(StudyEnded(study="s", status="paused", stop_reason="the same command goes on"))
    assert stream.getvalue().splitlines() == ["s: failed", "s: paused, the same command goes on"]


def test_quiet_shows_nothing() -> None:
    stream = io.StringIO()
    with display(stream, quiet=True) as on_progress:
        for fact in FACTS:
            on_progress(fact)
    assert stream.getvalue() == ""


def test_the_screen_shows_trial_knobs_rate_memory_best_and_time_left() -> None:
    seen = Seen()
    for fact in (STARTED, Best(number=0, throughput=1204.0, unit=UNIT, speedup=1.0)):
        seen.take(fact, now=100.0)
    seen.take(TrialStarted(number=7, config=OTHER), now=110.0)
    seen.take(
        StepSeen(number=7, steps=12, phase="measure", rate=3421.0, unit=UNIT, memory_bytes=2**31, limit_bytes=2**33),
        111.0,
    )
    drawn = screen(seen, 120.0, 80)
    assert isinstance(drawn, Text)
    assert drawn.plain.splitlines() == [
        "trial 7 of at most 40 (search)  3 min left",
        "  micro_batch_size 8, precision bf16-mixed",
        "  measure  step 12  3.42k tokens/s  2.00 GiB of 8.00 GiB [#####...............]",
        "best so far: trial 0, 1.20k tokens/s, 1.00x the baseline",
    ]
    assert max(map(len, drawn.plain.splitlines())) <= 80


@pytest.mark.parametrize("count", range(len(FACTS) + 1))
def test_the_screen_can_be_drawn_after_every_fact(count: int) -> None:
    seen = Seen()
    for fact in FACTS[:count]:
        seen.take(fact, now=0.0)
    console = Console(file=io.StringIO(), width=40, force_terminal=True)
    console.print(screen(seen, 1.0, 40))


def test_a_terminal_keeps_the_ended_trials_above_the_live_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    with display(stream) as on_progress:
        for fact in FACTS:
            on_progress(fact)
    assert "trial  0  completed" in stream.getvalue()
    assert "\x1b[" in stream.getvalue()


def test_no_color_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    with display(stream) as on_progress:
        on_progress(FACTS[6])
    assert "\x1b[33m" not in stream.getvalue()
