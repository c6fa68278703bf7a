"""What a function may return, and what is made of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from objectives.contract import ObjectiveError
from objectives.function_workload import as_workload, batch_samples, repeated_blocks


def mean(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    return (model(batch[0]) - batch[1]).square().mean(dim=1).mean()


def parts(loss: Any = mean, *more: Any) -> tuple[Any, ...]:
    return (
        nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)),
        TensorDataset(torch.ones(8, 3), torch.zeros(8, 3)),
        loss,
        *more,
    )


def test_a_mean_becomes_a_sum_over_the_samples() -> None:
    workload = as_workload(parts(), "f")
    batch = workload.collate([workload.dataset()[index] for index in range(4)])
    total, units = workload.loss(workload.model, batch)
    assert units == 4
    assert total.item() == pytest.approx(4 * mean(workload.model, batch).item())


def test_a_sum_with_its_number_is_taken_as_it_is() -> None:
    workload = as_workload(parts(lambda model, batch: (model(batch[0]).sum(), 12)), "f")
    assert workload.loss(workload.model, workload.longest(2))[1] == 12


def test_the_largest_sample_stands_for_the_worst_case() -> None:
    rows = [torch.ones(size) for size in (2, 9, 4)]
    made = (nn.Linear(2, 2), rows, mean, lambda samples: nn.utils.rnn.pad_sequence(samples, batch_first=True))
    assert as_workload(made, "f").longest(3).shape == (3, 9)


def test_like_blocks_can_be_checkpointed() -> None:
    assert len(repeated_blocks(parts()[0])) == 2
    assert repeated_blocks(nn.Sequential(nn.Linear(3, 3), nn.ReLU())) == []
    assert hasattr(as_workload(parts(), "f"), "checkpoint_blocks")
    assert not hasattr(as_workload((nn.Linear(3, 3), *parts()[1:]), "f"), "checkpoint_blocks")
    assert not hasattr(as_workload(parts(), "f"), "set_attention")


def test_a_workload_is_taken_as_it_is() -> None:
    workload = as_workload(parts(), "f")
    assert as_workload(workload, "f") is workload


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (None, "returned a NoneType without model, dataset"),
        ((1, 2), "returned 2 things"),
        ((1, [1], mean), "where the model belongs"),
        ((nn.Linear(1, 1), iter([1]), mean), "needs a length and an index"),
        ((nn.Linear(1, 1), [1], 3), "as loss"),
    ],
)
def test_what_is_no_training_is_refused(made: Any, said: str) -> None:
    with pytest.raises(ObjectiveError, match=said):
        as_workload(made, "make_training")


def test_a_mean_without_a_tensor_to_count_is_refused() -> None:
    assert batch_samples({"x": torch.ones(5, 2)}) == 5
    with pytest.raises(ObjectiveError, match="no tensor"):
        batch_samples("text")
