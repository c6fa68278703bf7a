"""The reference load: fixed work, a median time, and a verdict on the machine."""

import torch

from objectives.measure.reference_load import ReferenceLoad, quiet, variation


def test_it_takes_time_and_leaves_the_threads_alone() -> None:
    before = torch.get_num_threads()
    assert 0 < ReferenceLoad("cpu", threads=1).seconds(calls=3) < 5
    assert torch.get_num_threads() == before


def test_alike_times_are_quiet_and_few_or_unlike_ones_are_not() -> None:
    assert quiet([1.0, 1.01, 0.995])
    assert not quiet([1.0, 1.1, 0.9])
    assert not quiet([1.0, 1.0])
    assert not quiet([])
    assert variation([2.0, 2.0]) == 0.0
