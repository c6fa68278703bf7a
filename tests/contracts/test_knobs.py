"""Every knob keeps its contract: described, legal by default, and in effect after `apply` as `read_back` sees it."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from objectives import knobs
from objectives.config import KNOB_NAMES, TrainingConfig
from objectives.knobs import KNOBS, Facts, Knob
from objectives.knobs.memory_format import convert_batch
from objectives.trial.setup import Setup

sys.path.append(str(Path(__file__).parents[1] / "workloads"))
import tests_tiny_lm

ALL_METHODS = frozenset({"checkpoint_blocks", "set_attention", "set_loss", "set_batching", "set_tokens", "lengths"})
CPU = Facts(device_kind="cpu", cores=4, workload_methods=ALL_METHODS, has_convolutions=True, packable=True)
INTEGERS = {"micro_batch_size": (1, 2, 4), "loader_workers": (0, 1, 2), "prefetch_factor": (1, 2, 4)}

by_name = pytest.mark.parametrize("item", KNOBS, ids=lambda item: item.name)


def legal_on_cpu() -> list[tuple[str, Any]]:
    return [(item.name, value) for item in KNOBS for value in knobs.legal_values(item, CPU, INTEGERS.get(item.name))[0]]


def test_the_tuple_names_exactly_the_fields_of_the_configuration() -> None:
    assert sorted(item.name for item in KNOBS) == sorted(KNOB_NAMES)


@by_name
def test_every_choice_says_what_it_does_and_where_that_comes_from(item: Knob) -> None:
    assert item.summary.endswith(".")
    assert all(choice.meaning.endswith(".") and choice.source for choice in item.choices)
    assert len(set(item.values)) == len(item.values)
    assert bool(item.choices) == (item.kind != "integer")
    assert item.kind != "integer" or 0 <= item.low < item.high


@by_name
def test_the_default_is_the_configuration_field_s_and_legal_everywhere(item: Knob) -> None:
    field = next(field for field in fields(TrainingConfig) if field.name == item.name)
    assert item.default == field.default
    for facts in (Facts(), CPU, Facts(device_kind="cuda", capability=(7, 0))):
        assert knobs.legal_values(item, facts, (item.default,)) == ((item.default,), {})


@by_name
def test_environment_and_rules_answer_for_every_value(item: Knob) -> None:
    for value in item.values or INTEGERS[item.name]:
        assert all(isinstance(text, str) for text in item.environment(value).values())
        assert item.acts(TrainingConfig().with_values(**{item.name: value})) in (True, False)
        for facts in (CPU, Facts(device_kind="cuda", capability=(9, 0))):
            assert item.refuse(value, facts) is None or item.refuse(value, facts)
            assert item.offer(value, facts) in (True, False)


def test_what_is_offered_is_legal_and_holds_the_default() -> None:
    for facts in (Facts(), CPU, Facts(device_kind="cuda", capability=(9, 0), workload_methods=ALL_METHODS)):
        for item in KNOBS:
            offered = knobs.offered_values(item, facts)
            assert item.default in offered
            assert set(offered) <= set(knobs.legal_values(item, facts)[0])


@pytest.mark.parametrize(("name", "value"), legal_on_cpu(), ids=lambda part: str(part))
@pytest.mark.parametrize("kind", ["transformers", "own"])
def test_applied_values_are_read_back_from_the_running_objects(kind: str, name: str, value: Any) -> None:
    config = TrainingConfig(loader_workers=1 if name == "prefetch_factor" else 0).with_values(**{name: value})
    setup = made(kind, config)
    train_one_step(setup)
    assert knobs.differences(setup) == []
    found = knobs.read_back(setup)
    if name in found:
        assert found[name] == value
    else:
        assert kind == "own" or name in ("allocator", "memory_format")


@pytest.mark.parametrize("value", knobs.knob("compile").values)
def test_compile_leaves_its_options_to_the_loop_and_reads_what_the_model_calls(value: str) -> None:
    setup = made("transformers", TrainingConfig(compile=value))
    assert setup.compile_options == (None if value == "off" else {"mode": value})
    assert knobs.read_back(setup)["compile"] == "off"


def made(kind: str, config: TrainingConfig) -> Setup:
    """A setup with every knob applied and, where the loader's knobs matter, a loader."""
    objective = tests_tiny_lm.TinyLM() if kind == "transformers" else tests_tiny_lm.Pictures()
    device = torch.device("cpu")
    setup = Setup(device=device, workload=objective.build(device, 0), config=config)
    knobs.apply_all(setup)
    workload = setup.workload
    setup.loader = DataLoader(
        workload.dataset(), batch_size=config.micro_batch_size, collate_fn=workload.collate, **setup.loader_options
    )
    return setup


def train_one_step(setup: Setup) -> None:
    """Forward, backward and update on the first batch; compiled models are only wrapped (compiling takes a minute)."""
    assert setup.loader is not None
    assert setup.optimizer is not None
    if setup.compile_options is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler's first import warns of PyTorch's own old code
            setup.model.compile(**setup.compile_options)
        return
    batch = convert_batch(next(iter(setup.loader)), setup.config)
    with setup.forward_contexts[0](), setup.forward_contexts[-1]():
        loss, units = setup.workload.loss(setup.model, batch)
    mean = loss / units
    (mean if setup.scaler is None else setup.scaler.scale(mean)).backward()
    assert all(p.grad is not None for p in setup.model.parameters() if p.requires_grad)
    if setup.scaler is None:
        setup.optimizer.step()
    else:
        setup.scaler.step(setup.optimizer)


def test_the_package_loads_no_torch() -> None:
    code = "import sys, objectives.knobs; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
