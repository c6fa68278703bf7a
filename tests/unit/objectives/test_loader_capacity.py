"""What a pipeline delivers is counted in real units per second, without a step of training."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from objectives.contract import ObjectiveReference
from objectives.trial.loader_capacity import answer_for, summary, units_of
from objectives.trial.protocol import RunRequest

sys.path.insert(0, str(Path(__file__).parents[2] / "workloads"))
LOAD_SECONDS = 0.01


def request(**values: Any) -> RunRequest:
    reference = ObjectiveReference(kind="tests_paced:Paced", folder=".")
    config = {"micro_batch_size": 4, "accumulation_steps": 2}
    return RunRequest(run="r", purpose="loader_capacity", objective=reference, config=config, **values)


def test_the_rate_is_that_of_the_pipeline() -> None:
    from tests_paced import Paced

    answer = answer_for(request(), Paced(load_seconds=LOAD_SECONDS), {"loader_workers": 0}, 0.2)  # type: ignore[arg-type]
    assert 0.3 * 4 / LOAD_SECONDS < answer["units_per_second"] <= 4 / LOAD_SECONDS
    assert answer["batches"] >= 3
    assert answer["relative_standard_error"] is not None


def test_what_a_pipeline_raises_is_its_answer() -> None:
    from tests_paced import Paced

    answer = answer_for(request(), Paced(samples=2), {"loader_workers": 0}, 0.2)  # type: ignore[arg-type]
    assert "units_per_second" not in answer
    assert answer["reason"]


def test_units_are_the_batchs_own_else_the_samples_else_the_lengths() -> None:
    assert units_of({"units": 17}, [0, 1], "tokens", None) == 17.0
    assert units_of(torch.ones(2), [0, 1], "samples", None) == 2.0
    assert units_of(torch.ones(2), [0, 2], "tokens", [5, 6, 7]) == 12.0
    with pytest.raises(ValueError, match="not countable"):
        units_of(torch.ones(2), [0, 1], "tokens", None)


def test_an_even_series_has_no_error_and_a_single_batch_none_to_tell() -> None:
    even = summary([0.0, 0.5, 1.0, 1.5], [10.0, 10.0, 10.0])
    assert (even.units_per_second, even.batches, even.seconds) == (20.0, 3, 1.5)
    assert even.relative_standard_error == pytest.approx(0.0)
    assert summary([0.0, 2.0], [10.0]).relative_standard_error is None
