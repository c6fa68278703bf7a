"""Loader settings are measured once each: those that differ in what they do, and that no run has answered for yet."""

from __future__ import annotations

from search_fakes import FACTS, run_of, spec_of

from tuner.search.batch import GlobalBatch
from tuner.search.capacities import PURPOSE, Settings, capacities, distinct_settings, missing
from tuner.search.space import Space, make_space


def space(**search: tuple[object, ...]) -> Space:
    spec = spec_of(search=search)
    return make_space(spec, FACTS, GlobalBatch(samples=64), {"micro_batch_size": 1, "loader_workers": 0})


def stored(*answers: dict[str, object]) -> list[object]:
    return [run_of(None, None, 0.0, PURPOSE, measurement={"capacities": list(answers)})]  # type: ignore[arg-type]


def answer(settings: Settings, **said: object) -> dict[str, object]:
    return {"settings": dict(settings), **said}


def test_prefetching_without_workers_and_other_knobs_do_not_multiply_the_settings() -> None:
    made = distinct_settings(
        space(loader_workers=(0, 2), prefetch_factor=(2, 4), precision=("fp32", "bf16-mixed"), micro_batch_size=(1, 2))
    )
    assert [(each["loader_workers"], each["prefetch_factor"]) for each in made] == [(0, 2), (2, 2), (2, 4)]
    assert len(distinct_settings(space(precision=("fp32", "bf16-mixed")))) == 1


def test_what_has_an_answer_is_not_measured_again_even_if_it_is_a_reason() -> None:
    first, second, third = distinct_settings(space(loader_workers=(0, 1, 2)))
    known = stored(answer(first, units_per_second=10.0), answer(second, reason="OSError: gone"))
    assert missing([first, second, third], known) == [third]  # type: ignore[arg-type]


def test_capacities_are_those_that_were_measured_with_an_honest_error() -> None:
    first, second, third = distinct_settings(space(loader_workers=(0, 1, 2)))
    known = stored(
        answer(first, units_per_second=10.0, relative_standard_error=0.02),
        answer(second, reason="OSError: gone"),
        answer(third, units_per_second=30.0, relative_standard_error=None),
    )
    found = capacities([first, second, third], known)  # type: ignore[arg-type]
    assert [(each.settings, each.throughput) for each in found] == [(first, 10.0), (third, 30.0)]
    assert found[0].relative_standard_error == 0.02
    assert found[1].relative_standard_error > 0.02
