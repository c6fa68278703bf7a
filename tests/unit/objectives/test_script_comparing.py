"""What was asked beside what was read back: a difference is one, what cannot be seen is none."""

from __future__ import annotations

from typing import Any

import pytest

from objectives.config import TrainingConfig
from objectives.script.comparing import differences, read_config

ASKED = TrainingConfig(micro_batch_size=4, accumulation_steps=2, precision="bf16-mixed", loader_workers=2)
SEEN = {"micro_batch_size": 4.0, "accumulation_steps": 2, "precision": "bf16-mixed", "loader_workers": 2}


def found(seen: dict[str, Any], config: TrainingConfig = ASKED, *, ranks: int = 1, ranks_found: int = 1) -> list[Any]:
    carried = frozenset(seen) | {"micro_batch_size"}
    return [each["knob"] for each in differences(config, carried, seen, ranks=ranks, ranks_found=ranks_found)]


def test_the_same_is_no_difference() -> None:
    assert found(SEEN) == []
    assert read_config(SEEN)["micro_batch_size"] == 4


@pytest.mark.case("B07", "B13", "F03")
@pytest.mark.parametrize(
    ("seen", "knob"),
    [
        ({"micro_batch_size": 8.0}, "micro_batch_size"),
        ({"micro_batch_size": 3.5}, "micro_batch_size"),
        ({"accumulation_steps": 1}, "accumulation_steps"),
        ({"precision": "fp32"}, "precision"),
        ({"loader_workers": 0}, "loader_workers"),
    ],
)
def test_each_difference_is_named(seen: dict[str, Any], knob: str) -> None:
    assert found({**SEEN, **seen}) == [knob]


def test_ranks_are_compared_as_well() -> None:
    assert found(SEEN, ranks=2) == ["ranks"]


def test_what_cannot_be_seen_is_not_compared() -> None:
    assert differences(ASKED, frozenset({"precision", "compile"}), {}, ranks=1, ranks_found=1) == []


def test_what_the_template_does_not_carry_is_the_script_s_own() -> None:
    carried = frozenset({"micro_batch_size"})
    assert differences(ASKED, carried, {**SEEN, "precision": "fp32"}, ranks=1, ranks_found=1) == []


@pytest.mark.parametrize(
    ("knob", "asked", "seen", "same"),
    [
        ("activation_checkpointing", "full", "recomputed", True),
        ("activation_checkpointing", "selective", "recomputed", True),
        ("activation_checkpointing", "none", "recomputed", False),
        ("activation_checkpointing", "full", "none", False),
        ("optimizer", "adamw-fused", "adamw", False),
        ("optimizer", "adamw-foreach", "adamw", True),
    ],
)
def test_words_of_which_reading_back_tells_less(knob: str, asked: str, seen: str, same: bool) -> None:
    config = ASKED.with_values(**{knob: asked})
    assert (found({**SEEN, knob: seen}, config) == []) is same


def test_prefetching_without_workers_acts_nowhere() -> None:
    config = ASKED.with_values(loader_workers=0, prefetch_factor=4)
    assert found({**SEEN, "loader_workers": 0, "prefetch_factor": 2}, config) == []
