"""A whole space is known from few predictions: what cannot change a peak is asked about once."""

from __future__ import annotations

import pytest

from objectives.config import TrainingConfig
from objectives.knobs import config_key
from tuner.search.predictions import WITHOUT_TENSORS, predicted_peaks, representative, spread_out, to_ask


def configs() -> list[TrainingConfig]:
    return [
        TrainingConfig(micro_batch_size=size, loader_workers=workers, pin_memory=pinned, precision=precision)
        for precision in ("fp32", "bf16-mixed")
        for size in (1, 2)
        for workers in (0, 1, 2)
        for pinned in (False, True)
    ]


def test_loader_and_allocator_do_not_multiply_what_is_asked() -> None:
    asked = to_ask(configs(), {})
    assert len(asked) == 4
    assert all(config.loader_workers == 0 and not config.pin_memory for config in asked)


def test_the_answers_are_given_to_all_they_speak_of() -> None:
    wanted = configs()
    answers = {config_key(config): {"peak_memory_bytes": number} for number, config in enumerate(to_ask(wanted, {}), 1)}
    known = spread_out(wanted, answers)
    assert len(known) == len(wanted)
    assert known[config_key(wanted[0])] == known[config_key(wanted[5])] != known[config_key(wanted[6])]
    assert to_ask(wanted, known) == []


def test_only_what_is_missing_is_asked_and_no_more_than_the_most() -> None:
    wanted = configs()
    known = spread_out(wanted[:12], {config_key(config): {} for config in to_ask(wanted, {})})
    assert [config.precision for config in to_ask(wanted, known)] == ["bf16-mixed", "bf16-mixed"]
    assert to_ask(wanted, {}, most=1) == [wanted[0]]
    assert spread_out(wanted, {}) == {}


@pytest.mark.parametrize("name", sorted(WITHOUT_TENSORS))
def test_every_knob_left_out_is_a_knob(name: str) -> None:
    assert getattr(representative(TrainingConfig()), name) == getattr(TrainingConfig(), name)


def test_peaks_are_those_that_could_be_predicted() -> None:
    said = {"a": {"peak_memory_bytes": 5}, "b": {"peak_memory_bytes": None, "note": "not predictable"}}
    assert predicted_peaks(said) == {"a": 5}
