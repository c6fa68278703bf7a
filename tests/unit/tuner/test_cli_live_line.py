"""The last line of ``tuner watch`` on a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from storage.records import RunRecord, TrialRecord
from tuner.cli.serving import LiveLine
from tuner.service import Change

START = datetime(2026, 1, 1, tzinfo=UTC)
CLEARED = "\r\x1b[K"
TRIAL = TrialRecord(
    id=7, study_id=1, number=3, config={}, config_key="k", source="auto", created_at=START,
    throughput_unit="tokens_per_second",
)  # fmt: skip
MEASURING = {"phase": "measure", "steps": 12, "units_per_second": 3420.0, "memory_bytes": 5 * 2**30}


def run(trial_id: int | None = 7, purpose: str = "search", progress: Any = None) -> RunRecord:
    return RunRecord(id="r", study_id=1, trial_id=trial_id, purpose=purpose, started_at=START, progress=progress)


def test_open_runs_stand_in_the_last_line_and_facts_above_it(capsys: pytest.CaptureFixture[str]) -> None:
    live = LiveLine()
    live.take(Change(run=run(), trial=TRIAL), "trial  3  search runs on worker w")
    live.take(Change(running=(run(progress=MEASURING), run(None, "estimate"))), "")
    live.take(Change(trial=TRIAL), "")
    live.take(Change(running=()), "")
    assert capsys.readouterr().out.split(CLEARED) == [
        "",
        "trial  3  search runs on worker w\n",
        "trial 3: measure, step 12, 3.42k tokens/s, 5.00 GiB; estimate: starting",
        "",
    ]


def test_it_is_never_longer_than_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    LiveLine().take(Change(running=tuple(run(progress=MEASURING) for _ in range(9))), "")
    assert len(capsys.readouterr().out.removeprefix(CLEARED)) == 39
