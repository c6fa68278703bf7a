from __future__ import annotations

import pytest

from objectives.estimate.prediction import CATEGORIES, MicroPiece, Peak, Prediction, UpdatePiece, between, worst


def micro(activations: int, *, parameters: int = 100, batch: int = 5, operator: str = "aten.mm.default") -> MicroPiece:
    return MicroPiece(
        peak=Peak(categories={"parameters": parameters, "activations": activations}, operator=operator),
        batch_bytes=batch,
    )


UPDATE = UpdatePiece(
    peak=Peak(categories={"parameters": 100, "optimizer_state": 200, "temporaries": 100}, operator="aten.sqrt.default"),
    state_bytes=200,
)


def test_a_large_micro_step_is_the_peak_with_the_state_beside_it() -> None:
    peak = worst(micro(500), UPDATE)
    assert peak.total_bytes == 800
    assert peak.categories["optimizer_state"] == 200
    assert peak.operator == "aten.mm.default"


def test_a_small_micro_step_leaves_the_update_as_the_peak_with_the_batch_beside_it() -> None:
    peak = worst(micro(10), UPDATE)
    assert peak.total_bytes == 405
    assert peak.categories["activations"] == 5
    assert peak.operator == "aten.sqrt.default"


@pytest.mark.parametrize(("size", "expected"), [(2, 120), (5, 150), (8, 180)])
def test_between_two_sizes_lies_a_line(size: int, expected: int) -> None:
    made = between((2, micro(20)), (8, micro(80, batch=11)), size)
    assert made.peak.total_bytes == expected
    assert made.batch_bytes == 5 + (size - 2)


def test_a_prediction_survives_its_way_through_an_event() -> None:
    made = Prediction(
        peak_memory_bytes=7, categories=dict.fromkeys(CATEGORIES, 1), operator_at_peak="aten.mm.default", seconds=0.1
    )
    assert Prediction.from_mapping(made.to_mapping()) == made
