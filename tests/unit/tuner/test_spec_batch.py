"""The batch as four numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.spec.batch import batch_problem, divisors_between, nearest_divisors, powers_of_two_between


@pytest.mark.case("B12")
def test_a_refusal_shows_all_four_numbers_and_the_nearest_global_batches() -> None:
    found = batch_problem(global_batch_size=64, micro_batch_size=1, ranks=3)
    assert found is not None
    reason, fix = found
    for said in ("micro_batch_size 1", "accumulation_steps", "ranks 3", "global_batch_size 64"):
        assert said in reason
    assert "63 or 66" in fix


@pytest.mark.case("B12")
@given(st.integers(1, 3000), st.integers(1, 64), st.integers(1, 16))
def test_what_a_refusal_offers_really_works(total: int, micro: int, ranks: int) -> None:
    found = batch_problem(global_batch_size=total, micro_batch_size=micro, ranks=ranks)
    assert (found is None) == (total % (micro * ranks) == 0)
    if found is None:
        return
    words = found[1].replace(",", " ").replace(")", " ").split()
    for size in map(int, filter(str.isdigit, words[words.index("global_batch_size") :])):
        assert batch_problem(global_batch_size=size, micro_batch_size=micro, ranks=ranks) is None


@pytest.mark.case("B07")
def test_sizes_that_divide() -> None:
    refused = [size for size in (1, 2, 4, 8, 16, 24) if batch_problem(global_batch_size=64, micro_batch_size=size)]
    assert refused == [24]
    assert nearest_divisors(64, 24) == (8, 16, 32, 64)
    assert divisors_between(96, 3, 12) == (3, 4, 6, 8, 12)
    assert powers_of_two_between(3, 33) == (4, 8, 16, 32)
    assert batch_problem(global_batch_size=64, micro_batch_size=128) is not None
