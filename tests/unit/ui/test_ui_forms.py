"""Form and YAML say the same; the rest of a text stays as a person wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from objectives.config import KNOB_NAMES
from objectives.knobs import KNOBS
from tuner import spec as specs
from tuner.spec.keys import LimitKeys, StudyKeys
from tuner.spec.objective_keys import KINDS
from ui.forms.fields import Field, fields, holds, meant, shown
from ui.forms.past import as_yaml, free_name
from ui.forms.text import edited, flow, value_at, values_of, written

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
SPECS = [each for each in EXAMPLES if each.read_text().find("\nstudy:") >= 0]
QUICKSTART = next(each for each in SPECS if each.name == "quickstart.yaml").read_text()


def field(*path: str, kind: str = "causal_lm") -> Field:
    return next(each for each in fields(kind) if each.path == path)


def test_every_knob_and_key_has_its_control_from_its_own_list() -> None:
    found = {each.path for each in fields("causal_lm")}
    assert {("search", name) for name in KNOB_NAMES} <= found
    assert {("baseline", name) for name in KNOB_NAMES} <= found
    assert {("limits", name) for name in LimitKeys.model_fields} <= found
    plain = set(StudyKeys.model_fields) - {"objective", "search", "baseline", "limits", "environment", "on_cuda"}
    assert {(name,) for name in plain} <= found
    for knob in KNOBS:
        assert field("search", knob.name).values == knob.values
        assert knob.summary in field("search", knob.name).help


@pytest.mark.parametrize("kind", [*KINDS, "package.module:Name"])
def test_every_kind_of_objective_has_controls_with_help(kind: str) -> None:
    mine = [each for each in fields(kind) if each.section == "objective"]
    assert mine
    assert all(each.help and each.label for each in mine)
    assert len({each.key for each in fields(kind)}) == len(fields(kind))


@pytest.mark.parametrize("file", SPECS, ids=lambda file: file.stem)
def test_a_control_that_was_not_touched_changes_nothing(file: Path) -> None:
    text = file.read_text()
    values = values_of(text)
    assert values is not None
    for each in fields(str(value_at(values, ("objective", "kind")))):
        value = value_at(values, each.path)
        assert holds(each, value), each.path
        if value is not None:
            assert edited(text, each.path, meant(each, shown(each, value))) == text, each.path


def test_a_change_touches_its_own_line_alone_and_keeps_comments() -> None:
    made = edited(QUICKSTART, ("search", "precision"), ["fp32"])
    made = edited(made, ("limits", "trials"), 12)
    before, after = QUICKSTART.splitlines(), made.splitlines()
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [
        "  precision: [fp32]",
        "limits: {memory: 80%, trials: 12, time: 4m, trial_time: 60s, window: 3s}",
    ]


def test_words_stay_words() -> None:
    text = edited("study: x\n", ("search", "compile"), ["off", "default"])
    assert "compile: [off, default]" in text
    assert values_of(text) == {"study": "x", "search": {"compile": ["off", "default"]}}
    assert values_of(edited(text, ("study",), "123")) == {"study": "123", "search": {"compile": ["off", "default"]}}


def test_what_is_left_out_goes_with_its_empty_mapping() -> None:
    text = edited("", ("objective", "lora", "r"), 8)
    assert values_of(text) == {"objective": {"lora": {"r": 8}}}
    assert edited(text, ("objective", "lora", "r"), None) == ""


@pytest.mark.parametrize("text", ["a: [", "a: &x 1\nb: *x", "a: !!python/object:os.system {}", "- 1", "a: 1\na: 2"])
def test_a_text_that_cannot_be_read_is_left_alone(text: str) -> None:
    assert values_of(text) is None
    assert edited(text, ("study",), "x") == text


@pytest.mark.parametrize(
    ("path", "typed", "value"),
    [
        (("search", "micro_batch_size"), "1, 2,4", [1, 2, 4]),
        (("search", "micro_batch_size"), "1 to 64", {"low": 1, "high": 64}),
        (("search", "micro_batch_size"), "many", ["many"]),
        (("limits", "trials"), "12", 12),
        (("limits", "trials"), "a dozen", "a dozen"),
        (("limits", "time"), "20m", "20m"),
        (("limits", "memory"), "92%", "92%"),
        (("learning_rate",), "3e-4", 3e-4),
        (("study",), "123", "123"),
        (("study",), "  ", None),
        (("objective", "data", "tokenizer"), "{train: {vocab_size: 4096}}", {"train": {"vocab_size": 4096}}),
        (("objective", "data", "path"), "[a.txt, b.txt]", ["a.txt", "b.txt"]),
        (("objective", "data", "path"), "!!python/object:os.system x", "!!python/object:os.system x"),
        (("objective", "model", "config"), "model_type: gpt2\nn_embd: 64\n", {"model_type": "gpt2", "n_embd": 64}),
        (("search", "precision"), [], None),
        (("baseline", "pin_memory"), False, False),
    ],
)  # fmt: skip
def test_what_is_typed_means_what_it_says(path: tuple[str, ...], typed: Any, value: Any) -> None:
    assert meant(field(*path), typed) == value


def test_a_value_that_no_control_can_hold_is_left_to_the_editor() -> None:
    assert not holds(field("search", "precision"), ["fp32", "fp8"])
    assert not holds(field("search", "precision"), {"low": 1})
    assert not holds(field("sampler"), "magic")
    assert holds(field("search", "precision"), "fp32")


@pytest.mark.parametrize("file", SPECS, ids=lambda file: file.stem)
def test_a_past_study_starts_the_same_study_under_another_name(file: Path) -> None:
    before = specs.read(file, has_gpu=lambda: False)
    text = as_yaml(specs.to_mapping(before), "another")
    after = specs.read(text, has_gpu=lambda: False)
    assert after.study == "another"
    assert specs.difference(specs.identity(before), specs.identity(after)) == []
    assert (before.limits, before.sampler, before.device) == (after.limits, after.sampler, after.device)


def test_a_free_name_counts_on() -> None:
    assert free_name("llama", {"llama"}) == "llama-2"
    assert free_name("llama-2", {"llama", "llama-2", "llama-3"}) == "llama-4"


def test_texts_are_written_so_that_they_read_back() -> None:
    values = {"a": "off", "b": ["on", "1", 1, True, None, "x: y", "#"], "c": {"d": {"e": "<script>"}}}
    assert values_of(written(values)) == values
    assert flow(["full", 1]) == "[full, 1]"
