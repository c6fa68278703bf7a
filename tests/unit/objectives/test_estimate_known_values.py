from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from objectives.estimate.known_values import LARGEST_KNOWN, KnownValues
from objectives.estimate.prediction import Unpredictable

LABELS = torch.tensor([[1, 2, -100], [3, -100, -100]])


@pytest.fixture
def values() -> Iterator[KnownValues]:
    fakes = FakeTensorMode(allow_non_fake_inputs=True)
    with fakes, KnownValues(fakes) as mode:
        yield mode


def test_a_loss_may_count_its_own_units(values: KnownValues) -> None:
    labels = values.give(LABELS)
    assert isinstance(labels, FakeTensor)
    assert int((labels != -100).sum()) == 3
    assert bool((labels[:, 0] > 0).all())
    assert labels.max().item() == 3
    assert values.guesses == 0


def test_a_mask_selects_as_many_rows_as_it_has_marks(values: KnownValues) -> None:
    labels = values.give(LABELS)
    logits = torch.empty(2, 3, 5)
    assert logits[labels != -100].shape == (3, 5)
    assert (labels > 1).nonzero().shape == (2, 2)
    assert labels.masked_select(labels != -100).shape == (3,)


def test_a_change_in_place_is_followed(values: KnownValues) -> None:
    labels = values.give(LABELS)
    labels.masked_fill_(labels == -100, 0)
    labels += 1
    assert labels.sum().item() == 6 + 6


def test_a_change_by_something_unknown_is_forgotten(values: KnownValues) -> None:
    labels = values.give(LABELS)
    labels[0, 0] = torch.empty(3).sum().long()
    with pytest.raises(Unpredictable, match="only a run can know"):
        labels[0, 0].item()


def test_an_optimizers_step_counts(values: KnownValues) -> None:
    steps = [torch.tensor(0.0), torch.tensor(0.0)]
    torch._foreach_add_(steps, 1.0)
    steps[0] += 1
    assert [step.item() for step in steps] == [2.0, 1.0]
    assert values.guesses == 0


def test_an_unknown_number_is_taken_for_zero_and_counted(values: KnownValues) -> None:
    assert float(torch.empty(3).sum()) == 0.0
    assert values.guesses == 1


def test_a_size_that_only_a_run_knows_is_refused_with_that_reason(values: KnownValues) -> None:
    with pytest.raises(Unpredictable, match="nonzero"):
        torch.empty(3).nonzero()


def test_large_tensors_keep_no_values(values: KnownValues) -> None:
    made = torch.ones(LARGEST_KNOWN + 1, dtype=torch.long)
    with pytest.raises(Unpredictable):
        made.sum().item()
