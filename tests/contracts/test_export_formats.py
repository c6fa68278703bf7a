"""What every export format promises, over the tuple of formats."""

from __future__ import annotations

import json
from itertools import product

import pytest
from handovers import PRECISIONS, handover_of, matrix
from hypothesis import given
from hypothesis import strategies as st

from objectives.config import KNOB_NAMES, TrainingConfig
from objectives.knobs import KNOBS
from objectives.knobs.allocator import VARIABLES
from tuner.export import FORMATS, Format, accelerate, deepspeed, export, hf_trainer, lightning, torchtitan
from tuner.export.environment import TF32_OFF, TF32_ON
from tuner.export.handover import Export, ExportRefused, Handover

EACH = pytest.mark.parametrize("target", FORMATS, ids=lambda each: each.name)
REFUSED = {
    ("deepspeed", "bf16-true", "cuda"), ("deepspeed", "bf16-true", "cpu"),
    ("torchtitan", "fp16-mixed", "cuda"), ("torchtitan", "fp16-mixed", "cpu"),
    ("hf-trainer", "fp16-mixed", "cpu"), ("accelerate", "fp16-mixed", "cpu"), ("lightning", "fp16-mixed", "cpu"),
}  # fmt: skip
"""Every pair of a format and a precision that cannot be had there."""


def made_of(handover: Handover, target: Format) -> Export | None:
    """The export, or None for the pairs that are refused; an unexpected refusal or its absence fails."""
    refused = (target.name, handover.config.precision, handover.device_kind) in REFUSED
    if refused:
        with pytest.raises(ExportRefused, match="othing was written"):
            export(handover, target)
        return None
    return export(handover, target)


@EACH
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_over_the_whole_matrix_every_knob_is_told_exactly_once(target: Format, kind: str) -> None:
    for handover in matrix(kind):
        made = made_of(handover, target)
        if made is not None:
            left = [each.knob for each in made.not_carried]
            assert sorted([*made.carried, *left]) == sorted(KNOB_NAMES), handover.config
            assert all(each.why for each in made.not_carried)


@EACH
@pytest.mark.parametrize("knob", KNOBS, ids=lambda each: each.name)
def test_every_value_of_every_knob_is_carried_or_said(target: Format, knob) -> None:
    for value in knob.values or (1, 2, 4):
        handover = handover_of(config={"accumulation_steps": 1, knob.name: value})
        made = made_of(handover, target)
        if made is not None:
            assert (knob.name in made.carried) != (knob.name in {each.knob for each in made.not_carried})


@EACH
def test_a_configuration_says_what_it_is_for_and_what_was_not_tested(target: Format) -> None:
    made = export(handover_of(), target)
    told = " ".join(made.notes)
    for word in (
        "global batch 16", "Evaluation was not tested", "start fresh", "optimizer steps of 16", "4096 tokens",
        "confirmed", "torch 2.13.0", "60.00 GiB", "13.00 GiB",
    ):  # fmt: skip
        assert word in told
    assert target.target
    assert target.alone or target.target in made.files["NOTES.md"]


@EACH
@pytest.mark.case("I02")
@pytest.mark.parametrize(("micro", "steps", "ranks"), [(4, 4, 2), (4, 3, 1), (3, 5, 1), (4, 0, 1)])
def test_a_product_that_is_not_the_global_batch_writes_nothing(
    target: Format, micro: int, steps: int, ranks: int
) -> None:
    config = {"micro_batch_size": micro, "accumulation_steps": steps}
    with pytest.raises(ExportRefused, match="micro-batches would do"):
        export(handover_of(config=config, ranks=ranks, global_batch_size=16), target)


@EACH
@pytest.mark.case("C12")
def test_bf16_true_is_marked_wherever_it_goes(target: Format) -> None:
    made = made_of(handover_of(config={"precision": "bf16-true"}), target)
    if made is not None:
        assert any("bf16-true is another training" in note for note in made.notes)


@EACH
@pytest.mark.case("C06")
@pytest.mark.parametrize("precision", PRECISIONS)
def test_tf32_is_said_both_ways(target: Format, precision: str) -> None:
    made = made_of(handover_of(config={"precision": precision}), target)
    if made is None or target.alone:
        return
    if target.name == "hf-trainer":
        assert made.values["tf32"] is (precision == "tf32")
        assert not {TF32_ON, TF32_OFF} & set(made.environment)
    else:
        said = {name: made.environment.get(name) for name in (TF32_ON, TF32_OFF)}
        assert said == ({TF32_ON: "1", TF32_OFF: None} if precision == "tf32" else {TF32_ON: None, TF32_OFF: "0"})


@EACH
def test_allocator_settings_stand_under_both_names(target: Format) -> None:
    made = export(handover_of(config={"allocator": "expandable_segments"}), target)
    assert {made.environment.get(name) for name in VARIABLES} == {"expandable_segments:True"}
    text = " ".join(made.files.values())
    assert all(f"{name}" in text for name in VARIABLES)


@EACH
@given(name=st.text(min_size=1, max_size=40), micro=st.integers(1, 64), steps=st.integers(1, 64))
def test_any_name_and_batch_make_files_that_hold_no_foreign_line(
    target: Format, name: str, micro: int, steps: int
) -> None:
    config = {"micro_batch_size": micro, "accumulation_steps": steps}
    made = export(handover_of(config=config, study=name), target)
    plain = export(handover_of(config=config, study="x"), target)
    for file, text in made.files.items():
        assert text.count("\n") == plain.files[file].count("\n"), file
        if file.endswith(".json"):
            json.loads(text)


@pytest.mark.case("C10")
def test_every_pair_of_precision_and_strategy_is_mapped_or_refused() -> None:
    strategies = {hf_trainer: "ddp", accelerate: "ddp", lightning: "ddp", torchtitan: "ddp", deepspeed: "deepspeed"}
    known = {(module.TITLE, pair) for module in strategies for pair in module.PRECISIONS}
    every = {(module.TITLE, (word, way)) for module, way in strategies.items() for word in PRECISIONS}
    assert every - known == {("DeepSpeed", ("bf16-true", "deepspeed")), ("torchtitan", ("fp16-mixed", "ddp"))}
    assert not known - every, "a pair that no format can reach"


def test_names_are_unique_and_the_formats_frozen() -> None:
    assert len({each.name for each in FORMATS}) == len(FORMATS)
    for target, (a, b) in product(FORMATS, [(1, 4)]):
        assert export(handover_of(config={"accumulation_steps": a}), target) is not None
        assert export(handover_of(config={"accumulation_steps": b}), target) is not None
    assert TrainingConfig().accumulation_steps == 1
