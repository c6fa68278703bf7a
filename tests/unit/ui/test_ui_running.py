"""What a card of a run in progress says."""

from __future__ import annotations

from datetime import UTC, datetime

from storage.records import RunRecord, TrialRecord
from ui.data import Ongoing
from ui.parts.running import memory

START = datetime(2026, 1, 1, tzinfo=UTC)
GIB = 2**30


def ongoing(*, peak: int | None = None, predicted: int | None = None) -> Ongoing:
    progress = {"phase": "measure", "memory_bytes": peak}
    run = RunRecord(id="r", study_id=1, trial_id=1, purpose="search", started_at=START, progress=progress)
    trial = TrialRecord(
        id=1, study_id=1, number=3, config={}, config_key="k", source="auto", created_at=START,
        predicted_peak_memory_bytes=predicted,
    )  # fmt: skip
    return Ongoing(run=run, trial=trial, worker=None, seconds=1.0, silent=False)


def test_the_measured_peak_stands_beside_the_limit_and_the_prediction() -> None:
    assert memory(ongoing(peak=5 * GIB, predicted=6 * GIB), 10 * GIB) == (
        0.5,
        "memory 5.00 GiB of 10.00 GiB, predicted 6.00 GiB",
    )
    assert memory(ongoing(peak=5 * GIB), 10 * GIB) == (0.5, "memory 5.00 GiB of 10.00 GiB")


def test_before_it_is_measured_the_prediction_is_shown_as_one() -> None:
    assert memory(ongoing(predicted=6 * GIB), 10 * GIB) == (0.6, "predicted 6.00 GiB of 10.00 GiB")


def test_without_a_limit_or_any_figure_there_is_no_bar() -> None:
    assert memory(ongoing(), 10 * GIB) is None
    assert memory(ongoing(peak=GIB), None) is None


def test_the_bar_ends_at_the_limit() -> None:
    assert memory(ongoing(peak=11 * GIB), 10 * GIB) == (1.0, "memory 11.00 GiB of 10.00 GiB")
