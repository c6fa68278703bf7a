"""A real trainer beside the study's own number."""

from __future__ import annotations

from typing import Any

import pytest
from handovers import handover_of

from tuner.answer.in_trainer import document, verdict
from tuner.documents import IN_TRAINER, missing
from tuner.errors import StudyError, TightfitError
from tuner.export import export, format_named
from tuner.work.in_trainer import TRAINERS, require_trainer

FOUND = {
    "steps": 10, "micro_batches": [4] * 10, "units": 16_000, "wall_seconds": 10.0, "compute_seconds": 8.0,
    "optimizer_seconds": 1.0, "data_seconds": 0.5, "trainer_seconds": 0.5, "peak_memory_bytes": 2**30,
    "trainer_says": {"train_samples_per_second": 15.0},
}  # fmt: skip


def told(own: tuple[float, float] = (1600.0, 1600.0), **values: Any) -> dict[str, Any]:
    handover = handover_of()
    made = export(handover, format_named("lightning"))
    return document(handover, made, "lightning", {**FOUND, **values}, own, interval=None)


def test_the_trainers_number_stands_beside_the_studys() -> None:
    found = told()
    assert missing(found, IN_TRAINER) == []
    assert (found["throughput"], found["samples_per_second"], found["of_own_loop"]) == (1600.0, 16.0, 1.0)
    assert found["of_study"] == pytest.approx(1600.0 / 1234.5)
    assert found["as_exported"] is True
    assert [each["knob"] for each in found["in_code"]] == ["optimizer"]


def test_another_number_of_micro_batches_is_not_what_was_exported() -> None:
    assert told(micro_batches=[4, 4, 3])["as_exported"] is False
    assert told(micro_batches=[2] * 5)["as_exported"] is False


def test_nothing_timed_is_null_and_said() -> None:
    found = told(steps=0, micro_batches=[], wall_seconds=None, units=0)
    assert (found["throughput"], found["samples_per_second"], found["as_exported"]) == (None, None, False)
    assert "nothing can be said" in found["verdict"]


@pytest.mark.parametrize(
    ("rate", "own", "overhead", "said"),
    [
        (95.0, (100.0, 100.0), 0.1, "as fast as the study's own loop within 10% (95% of it)"),
        (130.0, (100.0, 102.0), 0.1, "as fast as"),
        (60.0, (100.0, 100.0), 4.0, "the trainer's own work is 40% of the time, without it the steps are as fast"),
        (60.0, (100.0, 100.0), 1.0, "10% of the time, without it 67%"),
        (60.0, (100.0, 160.0), 1.0, "too busy to tell"),
    ],
)
def test_the_verdict_shows_the_overhead_apart(
    rate: float, own: tuple[float, float], overhead: float, said: str
) -> None:
    assert said in verdict(rate, own, overhead, 10.0)


@pytest.mark.parametrize("name", sorted(TRAINERS))
def test_a_trainer_that_is_not_installed_is_said_with_the_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.work.in_trainer.importlib.util.find_spec", lambda _package: None)
    with pytest.raises(TightfitError, match=r"not installed: pip install"):
        require_trainer(name)


def test_an_unknown_trainer_is_refused() -> None:
    with pytest.raises(StudyError, match="there are hf-trainer, lightning"):
        require_trainer("trainer")
