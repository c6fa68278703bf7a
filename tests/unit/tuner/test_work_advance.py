"""How far a run has come, from its events."""

from __future__ import annotations

from typing import Any

import pytest

from objectives.trial.protocol import Event
from tuner.work.advance import Advance


def event(name: Any, **fields: Any) -> Event:
    return Event(event=name, seq=0, monotonic_seconds=0.0, fields=fields)


def after(*events: Event) -> Advance:
    seen = Advance()
    for each in events:
        seen = seen.after(each)
    return seen


def step(units: int = 100, seconds: float = 0.5, **fields: Any) -> Event:
    return event("step", kind="optimizer", units=units, seconds=seconds, **fields)


def test_a_run_that_has_only_begun_knows_no_rate_and_no_memory() -> None:
    assert Advance().to_mapping() == {
        "phase": "import", "steps": 0, "units_per_second": None, "memory_bytes": None,
    }  # fmt: skip


def test_the_rate_is_that_of_the_phase_and_the_steps_are_those_of_all() -> None:
    seen = after(event("phase", phase="worst_case"), step(), event("phase", phase="measure"), step(300), step(500))
    assert (seen.phase, seen.steps, seen.units_per_second) == ("measure", 3, 800.0)


def test_a_skipped_step_takes_time_and_gives_nothing() -> None:
    assert after(step(), step(skipped=True)).units_per_second == 100.0


def test_the_memory_last_read_stays() -> None:
    seen = after(event("memory", peak_memory_bytes=7), event("phase", phase="load"), event("memory", used_share=0.5))
    assert seen.memory_bytes == 7


@pytest.mark.parametrize("name", ["started", "applied", "measurement", "answer", "failure", "finished"])
def test_what_says_nothing_of_it_changes_nothing(name: str) -> None:
    seen = after(step())
    assert seen.after(event(name, phase="measure", units=1)) is seen
