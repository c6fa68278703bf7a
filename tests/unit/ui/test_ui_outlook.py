"""The plan of a typed spec: what is known is said, what is not is not made up."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from objectives.config import TrainingConfig
from objectives.knobs import config_key, facts_to_mapping
from objectives.knobs.knob import Facts
from storage.records import StudyRecord
from tuner import spec as specs
from ui.forms.outlook import outlook

GIB = 2**30
SPEC = specs.read(
    {
        "study": "new",
        "objective": {"kind": "mine:Objective"},
        "global_batch_size": 8,
        "search": {"micro_batch_size": [1, 2, 4, 8], "loss": ["full", "chunked"]},
        "limits": {"trials": 6, "time": "20m", "memory": "40GiB"},
    }
)


def known(methods: frozenset[str], peaks: dict[int, int]) -> StudyRecord:
    predictions = {
        config_key(TrainingConfig(micro_batch_size=size)): {"peak_memory_bytes": peak} for size, peak in peaks.items()
    }
    facts: dict[str, Any] = {"facts": facts_to_mapping(Facts(workload_methods=methods)), "predictions": predictions}
    return StudyRecord(
        id=1, name="old", status="finished", spec={"limits": {"memory": {"share": 0.5}}}, identity={}, facts=facts,
        device="H200", memory_limit_bytes=40 * GIB, created_at=datetime.now(UTC),
    )  # fmt: skip


def test_without_a_study_alike_the_space_is_what_was_written_and_memory_is_not_known() -> None:
    found = outlook(SPEC, None)
    assert (found.configurations, found.exact, found.memory) == (8, False, None)
    assert found.plan.trials == 6
    assert 0 < found.plan.seconds <= 1200


def test_a_study_alike_says_what_can_run_and_what_fits() -> None:
    found = outlook(SPEC, known(frozenset(), {1: 5 * GIB, 2: 10 * GIB, 4: 39 * GIB, 8: 400 * GIB}))
    assert (found.configurations, found.exact) == (4, True)  # without set_loss there is one loss
    assert found.memory is not None
    assert (found.memory.study, found.memory.device, found.memory.limit_bytes) == ("old", "H200", 40 * GIB)
    assert found.memory.misfits == 1
    assert found.memory.fits + found.memory.doubtful == 3
    assert found.memory.smallest_bytes is not None
    assert found.memory.smallest_bytes < found.memory.largest_bytes  # type: ignore[operator]


def test_configurations_without_a_prediction_are_counted_as_that() -> None:
    found = outlook(SPEC, known(frozenset({"set_loss"}), {1: 5 * GIB}))
    assert found.configurations == 8
    assert found.memory is not None
    assert found.memory.unknown == 7
