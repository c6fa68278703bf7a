"""What measured blocks say of the data: padding, passes, the first pass."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from objectives.data.batching import padding_share
from objectives.trial.data_use import DataUse, positions


def used(waits: list[float], *, samples: int | None = 40, size: int = 10, batch: int | None = 10) -> dict:
    made = DataUse(samples=samples, samples_per_block=size)
    for wait in waits:
        made.note(units=[6], positions=[batch], wait_seconds=wait)
    return made.to_mapping()


def test_the_share_of_positions_that_teach_nothing():
    assert used([0.0] * 4)["padding_share"] == pytest.approx(0.4)
    assert used([0.0] * 4, batch=None)["padding_share"] is None
    assert used([])["padding_share"] is None


def test_the_first_pass_is_told_from_later_ones_once_both_were_seen_long_enough():
    waits = [9.0, 9.0, 3.0, 3.0, 4.0, 1.0, 1.0, 2.0]
    assert used(waits, samples=50)["first_pass_wait_seconds"] == 3.0  # without the first two blocks
    assert used(waits, samples=50)["later_pass_wait_seconds"] == 1.0
    assert used(waits, samples=50)["data_passes"] == pytest.approx(1.6)
    for few in (used(waits, samples=80), used(waits, samples=20), used(waits, samples=None)):
        assert few["first_pass_wait_seconds"] is None
        assert few["later_pass_wait_seconds"] is None
    assert used(waits, samples=None)["data_passes"] is None


def test_positions_are_read_from_token_batches_alone():
    assert positions({"input_ids": torch.zeros(3, 7, dtype=torch.long)}) == 21
    assert positions({"pixels": torch.zeros(3)}) is None
    assert positions(torch.zeros(3)) is None


@given(st.lists(st.integers(1, 50), min_size=8, max_size=64), st.sampled_from([1, 2, 4]))
def test_grouping_never_pads_more(lengths, size):
    asked = {"lengths": lengths, "micro_batch_size": size, "accumulation_steps": 8 // size}
    plain, grouped = (padding_share(**asked, batching=name) for name in ("padded", "length-grouped"))
    assert 0.0 <= grouped <= plain + 1e-9 < 1.0
    assert size > 1 or plain == 0.0
