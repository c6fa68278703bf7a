"""Which values are legal, offered, clash or act: decided on plain facts, without torch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from objectives import knobs
from objectives.config import TrainingConfig
from objectives.knobs import Facts, facts_from_mapping, facts_to_mapping

HOPPER = Facts(device_kind="cuda", capability=(9, 0), cores=8)


def legal(name: str, facts: Facts, values: tuple[object, ...] | None = None) -> tuple[object, ...]:
    return knobs.legal_values(knobs.knob(name), facts, values)[0]  # type: ignore[arg-type]


def reasons(name: str, facts: Facts, values: tuple[object, ...] | None = None) -> dict[object, str]:
    return dict(knobs.legal_values(knobs.knob(name), facts, values)[1])  # type: ignore[arg-type]


@pytest.mark.case("C04")
@pytest.mark.parametrize("capability", [(6, 1), (7, 0), (7, 5)])
def test_old_gpus_get_no_bf16_and_no_tf32(capability: tuple[int, int]) -> None:
    facts = Facts(device_kind="cuda", capability=capability)
    assert legal("precision", facts) == ("fp32", "fp16-mixed")
    text = reasons("precision", facts)["bf16-mixed"]
    assert "8.0" in text
    assert f"{capability[0]}.{capability[1]}" in text


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (12, 0)])
def test_newer_gpus_get_every_precision(capability: tuple[int, int]) -> None:
    assert reasons("precision", Facts(device_kind="cuda", capability=capability)) == {}


@pytest.mark.case("C09")
def test_a_cpu_offers_fp32_and_bf16_and_runs_fp16_only_when_asked() -> None:
    precision = knobs.knob("precision")
    assert knobs.offered_values(precision, Facts()) == ("fp32", "bf16-mixed")
    assert "fp16-mixed" in legal("precision", Facts())
    assert "fp16-mixed" in knobs.offered_values(precision, HOPPER)


@pytest.mark.case("C12")
def test_bf16_true_is_a_choice_of_its_own_and_never_offered_unasked() -> None:
    for facts in (Facts(), HOPPER):
        assert "bf16-true" not in knobs.offered_values(knobs.knob("precision"), facts)
        assert "bf16-true" in legal("precision", facts)


@pytest.mark.case("C07")
def test_a_micro_batch_whose_shape_a_kernel_refused_is_left_out() -> None:
    refused = {f"micro_batch_size={n}": "250 tokens: not a multiple of 16" for n in range(1, 8)}
    facts = Facts(unsupported=refused)
    assert legal("micro_batch_size", facts, tuple(range(1, 9))) == (8,)
    assert "multiple of 16" in reasons("micro_batch_size", facts, (3,))[3]


def test_cuda_things_are_refused_on_a_cpu_with_the_reason() -> None:
    assert reasons("allocator", Facts())["expandable_segments"] == "the CUDA caching allocator does not run on a CPU"
    assert reasons("pin_memory", Facts())[True]
    assert legal("compile", Facts()) == ("off", "default", "max-autotune")
    attention = Facts(workload_methods=frozenset({"set_attention"}))
    assert legal("attention", attention) == ("sdpa", "eager", "sdpa-math", "sdpa-flash")
    assert "backward" in reasons("attention", attention)["flex_attention"]


def test_packages_that_are_missing_are_named() -> None:
    facts = Facts(device_kind="cuda", capability=(9, 0), workload_methods=frozenset({"set_attention"}))
    assert "bitsandbytes" in reasons("optimizer", facts)["adamw-8bit"]
    assert "flash-attn" in reasons("attention", facts)["flash_attention_2"]
    there = Facts(device_kind="cuda", libraries={"bitsandbytes": "0.49", "flash-attn": "2.8"})
    assert "adamw-8bit" in legal("optimizer", there)


@pytest.mark.parametrize("name", ["activation_checkpointing", "attention", "loss", "tokens", "batching"])
def test_a_method_the_workload_lacks_makes_all_but_the_default_illegal(name: str) -> None:
    item = knobs.knob(name)
    assert legal(name, Facts(packable=True)) == (item.default,)
    assert item.needs is not None
    assert all(item.needs in reason for reason in reasons(name, Facts(packable=True)).values())


def test_a_workload_s_own_optimizer_makes_the_knob_illegal() -> None:
    assert legal("optimizer", Facts(workload_methods=frozenset({"optimizer"}))) == ("adamw",)


def test_packing_needs_a_global_batch_in_tokens() -> None:
    methods = frozenset({"set_batching", "lengths"})
    assert legal("batching", Facts(workload_methods=methods)) == ("padded", "length-grouped")
    assert "global_batch_tokens" in reasons("batching", Facts(workload_methods=methods))["packed"]
    assert "packed" in legal("batching", Facts(workload_methods=methods, packable=True))


def test_values_outside_a_knob_are_refused_in_the_user_s_words() -> None:
    assert "whole number" in reasons("micro_batch_size", Facts(), (0, True, "8"))["8"]
    assert legal("micro_batch_size", Facts(), (0, True)) == ()
    assert "bf16-mixed" in reasons("precision", Facts(), ("bf16",))["bf16"]
    assert legal("pin_memory", HOPPER, (1,)) == ()
    with pytest.raises(KeyError, match="micro_batch_size"):
        knobs.knob("batch")


@pytest.mark.parametrize("attention", ["sdpa-flash", "sdpa-cudnn", "flash_attention_2"])
def test_flash_kernels_clash_with_32_bit_on_cuda(attention: str) -> None:
    assert knobs.clashes(TrainingConfig(attention=attention), HOPPER)
    assert knobs.clashes(TrainingConfig(attention=attention, precision="tf32"), HOPPER)
    assert not knobs.clashes(TrainingConfig(attention=attention, precision="bf16-mixed"), HOPPER)
    assert not knobs.clashes(TrainingConfig(attention="sdpa-flash"), Facts())


def test_cuda_graphs_clash_with_batches_that_change_shape() -> None:
    config = TrainingConfig(compile="reduce-overhead", batching="length-grouped")
    assert knobs.clashes(config, HOPPER)
    assert not knobs.clashes(config.with_values(compile="default"), HOPPER)


def test_a_knob_that_does_not_act_takes_its_default() -> None:
    idle = TrainingConfig(prefetch_factor=8)
    assert knobs.canonical(idle) == TrainingConfig()
    acting = TrainingConfig(prefetch_factor=8, loader_workers=2)
    assert knobs.canonical(acting) == acting


def test_the_key_is_short_stable_and_that_of_the_canonical_configuration() -> None:
    base = TrainingConfig()
    assert knobs.config_key(base) == knobs.config_key(base.with_values(prefetch_factor=8, accumulation_steps=4))
    keys = {
        knobs.config_key(base.with_values(micro_batch_size=n, pin_memory=pinned))
        for n in (1, 2, 4)
        for pinned in (True, False)
    }
    assert len(keys) == 6
    assert knobs.config_key(TrainingConfig(micro_batch_size=4, precision="bf16-mixed")) == "c14a7be69d50f85d"


def test_facts_survive_json() -> None:
    facts = Facts(
        device_kind="cuda",
        capability=(8, 6),
        cores=4,
        libraries={"torch": "2.13.0"},
        workload_methods=frozenset({"set_loss", "lengths"}),
        unsupported={"attention=eager": "why"},
    )
    text = json.dumps(facts_to_mapping(facts))
    assert facts_from_mapping(json.loads(text)) == facts
    assert facts_from_mapping(json.loads(text) | {"of_a_newer_child": 1}) == facts
    assert facts_from_mapping({}) == Facts()


@pytest.mark.case("D06")
def test_cached_device_memory_is_given_back_once_before_the_model_is_built_and_never_after() -> None:
    folder = Path(knobs.__file__).parents[1]
    calls = {path.name: path.read_text().count("empty_cache(") for path in folder.rglob("*.py")}
    elsewhere = {"soaking.py": 1, "equivalence.py": 1}  # a remedy whose cost is measured; between two gradients
    assert {name: count for name, count in calls.items() if count} == {"memory_cuda.py": 1, **elsewhere}
