"""Which samples make which batch: the same for every configuration, and never a batch that cannot be filled."""

from __future__ import annotations

from itertools import chain, islice

import pytest

from objectives.data.batching import BATCHINGS, plan

LENGTHS = [(7 * i) % 23 + 2 for i in range(40)]


def batches(
    count: int, *, samples: int = 40, micro: int, steps: int, batching: str = "padded"
) -> list[list[list[int]]]:
    made = plan(
        samples=samples,
        lengths=LENGTHS[:samples],
        micro_batch_size=micro,
        accumulation_steps=steps,
        batching=batching,
    )
    return list(islice(made, count))


@pytest.mark.parametrize("batching", BATCHINGS)
@pytest.mark.parametrize(("micro", "steps"), [(1, 8), (2, 4), (4, 2), (8, 1)])
def test_global_batch_holds_the_same_samples_however_it_is_split(batching: str, micro: int, steps: int) -> None:
    for number, batch in enumerate(batches(12, micro=micro, steps=steps, batching=batching)):
        assert [len(part) for part in batch] == [micro] * steps
        expected = {index % 40 for index in range(number * 8, number * 8 + 8)}
        assert set(chain.from_iterable(batch)) == expected


def test_padded_keeps_the_order_of_the_data() -> None:
    assert batches(2, micro=2, steps=2) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


def test_length_grouped_sorts_within_a_global_batch_only() -> None:
    for batch in batches(5, micro=2, steps=4, batching="length-grouped"):
        lengths = [LENGTHS[index] for index in chain.from_iterable(batch)]
        assert lengths == sorted(lengths, reverse=True)


def test_wraps_into_the_next_epoch_without_losing_a_sample() -> None:
    seen = list(chain.from_iterable(chain.from_iterable(batches(5, samples=10, micro=2, steps=2))))
    assert seen == [*range(10), *range(10)]


@pytest.mark.case("B04")
@pytest.mark.parametrize(("samples", "micro", "steps"), [(3, 1, 4), (7, 8, 1), (1, 1, 2)])
def test_data_smaller_than_a_global_batch_is_refused_at_once_with_both_sizes(
    samples: int, micro: int, steps: int
) -> None:
    with pytest.raises(ValueError, match=rf"{samples} samples.*global batch of {micro * steps}.*no optimizer step"):
        plan(samples=samples, lengths=None, micro_batch_size=micro, accumulation_steps=steps, batching="padded")


@pytest.mark.parametrize("lengths", [None, [1, 2]])
def test_length_grouped_needs_all_lengths(lengths: list[int] | None) -> None:
    with pytest.raises(ValueError, match="length of every sample"):
        plan(samples=4, lengths=lengths, micro_batch_size=1, accumulation_steps=1, batching="length-grouped")


def test_unknown_mode_and_empty_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown batching 'sorted'"):
        plan(samples=4, lengths=None, micro_batch_size=1, accumulation_steps=1, batching="sorted")
    with pytest.raises(ValueError, match="at least 1"):
        plan(samples=4, lengths=None, micro_batch_size=0, accumulation_steps=1, batching="padded")
