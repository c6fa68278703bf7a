"""A user's own configuration beside the exported one."""

from __future__ import annotations

from typing import Any

import pytest
from handovers import handover_of

from tuner.export import export, format_named
from tuner.export.diff import Comparison, compare


def diff(yours: dict[str, Any], name: str = "hf-trainer", **config: Any) -> Comparison:
    handover = handover_of(config=config)
    return compare(yours, export(handover, format_named(name)).values, name, handover)


def reasons(compared: Comparison) -> dict[str, str]:
    return {each["key"]: each["reason"] for each in compared.problems}


@pytest.mark.parametrize("name", ["hf-trainer", "accelerate", "deepspeed", "lightning"])
def test_the_export_beside_itself_is_the_same_and_without_problems(name: str) -> None:
    compared = diff(dict(export(handover_of(), format_named(name)).values), name)
    assert {line.state for line in compared.lines} == {"same"}
    assert compared.problems == ()


def test_every_key_stands_once_with_both_values() -> None:
    compared = diff({"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "learning_rate": 1e-4})
    lines = {line.key: line for line in compared.lines}
    assert len(lines) == len(compared.lines)
    differing = lines["per_device_train_batch_size"]
    assert (differing.yours, differing.exported, differing.state) == (8, 4, "differs")
    assert lines["learning_rate"].state == "only_yours"
    assert lines["bf16"].state == "only_exported"
    assert compared.problems == ()


@pytest.mark.case("I05", "I07", "I08", "I01", "I04")
@pytest.mark.parametrize(
    ("name", "yours", "key", "said"),
    [
        ("hf-trainer", {"per_device_train_batch_sise": 4}, "per_device_train_batch_sise", "did you mean"),
        ("hf-trainer", {"evaluation_strategy": "no"}, "evaluation_strategy", "eval_strategy"),
        ("hf-trainer", {"bf16": "false"}, "bf16", "text, not a boolean"),
        ("hf-trainer", {"per_device_train_batch_size": "8"}, "per_device_train_batch_size", "text, not a number"),
        ("hf-trainer", {"bf16": True, "fp16": True}, "fp16", "at most one"),
        ("hf-trainer", {"gradient_accumulation_steps": 0}, "gradient_accumulation_steps", "whole number above 0"),
        ("hf-trainer", {"gradient_accumulation_steps": 2.0}, "gradient_accumulation_steps", "whole number above 0"),
        ("hf-trainer", {"dataloader_persistent_workers": True}, "dataloader_persistent_workers", "workers above 0"),
        ("hf-trainer", {"per_device_train_batch_size": 8}, "per_device_train_batch_size", "are 8 samples"),
        ("hf-trainer", {"gradient_checkpointing_kwargs": {"use_reentrant": True}}, "use_reentrant", "write false"),
        ("hf-trainer", {"auto_find_batch_size": True}, "auto_find_batch_size", "in silence"),
        ("deepspeed", {"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4,
                       "gradient_accumulation_steps": 8}, "train_batch_size", "256 is not 4 x 8 x 1"),
        ("deepspeed", {"train_batch_size": 16, "bf16": {"enable": True}}, "bf16.enable", "did you mean 'enabled'"),
        ("deepspeed", {"train_batch_size": 16, "fp16": {"enabled": "false"}}, "fp16.enabled", "not a boolean"),
        ("deepspeed", {"train_micro_batch_size_per_gpu": "8"}, "train_micro_batch_size_per_gpu", "not a number"),
        ("deepspeed", {"zero_optimisation": {}}, "zero_optimisation", "did you mean 'zero_optimization'"),
        ("deepspeed", {"bf16": {"enabled": True}}, "train_batch_size", "neither"),
        ("deepspeed", {"train_batch_size": 1, "fp16": {"enabled": True}, "bf16": {"enabled": True}}, "fp16", "both"),
        ("lightning", {"batch_size": 4}, "batch_size", "DataLoader"),
        ("lightning", {"accumulate_grad_batches": 0}, "accumulate_grad_batches", "above 0"),
        ("accelerate", {"mixed_precission": "bf16"}, "mixed_precission", "did you mean 'mixed_precision'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_yours_is_listed(name: str, yours: dict[str, Any], key: str, said: str) -> None:
    assert said in reasons(diff(yours, name))[key]


def test_a_boolean_and_a_one_are_not_the_same() -> None:
    compared = diff({"bf16": 1})
    assert next(line for line in compared.lines if line.key == "bf16").state == "differs"
