"""Knobs on a real CUDA device. Needs objectives/ only; each configuration in a process of its own where it must be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from objectives import knobs
from objectives.config import TrainingConfig
from objectives.knobs import Facts
from objectives.knobs.precision import set_tf32
from objectives.trial.setup import Setup
from objectives.trial.trainer import Trainer

WORKLOADS = Path(__file__).parents[1] / "workloads"
sys.path.append(str(WORKLOADS))
import tests_tiny_lm  # noqa: E402

pytestmark = pytest.mark.gpu
METHODS = frozenset({"checkpoint_blocks", "set_attention", "set_loss", "set_batching", "set_tokens", "lengths"})
STEPPED = ("precision", "attention", "loss", "activation_checkpointing", "optimizer", "memory_format")


def facts() -> Facts:
    from objectives.trial.capability import LIBRARIES, installed

    return Facts(
        device_kind="cuda",
        capability=torch.cuda.get_device_capability(),
        cores=4,
        libraries=installed(LIBRARIES),
        workload_methods=METHODS,
        has_convolutions=True,
    )


def stepped(config: TrainingConfig, objective: Any) -> Setup:
    device = torch.device("cuda", 0)
    setup = Setup(device=device, workload=objective.build(device, 0), config=config)
    knobs.apply_all(setup)
    trainer = Trainer(setup, max_grad_norm=1.0)
    dataset = setup.workload.dataset()
    trainer.micro_step(trainer.place(setup.workload.collate([dataset[0], dataset[1]])))
    trainer.update()
    return setup


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in STEPPED for value in knobs.knob(name).values], ids=str
)
def test_a_legal_value_trains_a_step_and_is_read_back(name: str, value: Any) -> None:
    legal, reasons = knobs.legal_values(knobs.knob(name), facts(), (value,))
    if not legal:
        assert reasons[value]
        return
    config = TrainingConfig(micro_batch_size=2, precision="bf16-mixed").with_values(**{name: value})
    objective = tests_tiny_lm.Pictures() if name == "memory_format" else tests_tiny_lm.TinyLM()
    try:
        setup = stepped(config, objective)
    except RuntimeError:
        if name != "attention":
            raise
        return  # a tiny head or a mask that one kernel refuses: the capability child's business
    assert knobs.differences(setup) == []
    assert knobs.read_back(setup)[name] == value


@pytest.mark.case("C06")
def test_tf32_really_changes_matrix_products_and_fp32_really_does_not() -> None:
    if torch.cuda.get_device_capability() < (8, 0):
        assert knobs.legal_values(knobs.knob("precision"), facts(), ("tf32",))[0] == ()
        return
    torch.manual_seed(0)
    left, right = (torch.randn(512, 512, dtype=torch.float64) for _ in range(2))
    exact = left @ right
    error = {}
    for on in (True, False):
        set_tf32(on)
        made = (left.float().cuda() @ right.float().cuda()).double().cpu()
        error[on] = float((made - exact).norm() / exact.norm())
    assert error[False] < 1e-6 < 1e-5 < error[True]


@pytest.mark.case("D07")
@pytest.mark.parametrize("value", knobs.knob("allocator").values)
def test_an_allocator_setting_is_read_back_from_the_allocator_itself(value: str) -> None:
    code = """
import json, sys, torch
from objectives import knobs
from objectives.config import TrainingConfig
from objectives.trial.setup import Setup
torch.ones(1, device="cuda")
setup = Setup(device=torch.device("cuda", 0), workload=None, config=TrainingConfig())
print(json.dumps(knobs.knob("allocator").read_back(setup)))
"""
    environment = {**os.environ, **knobs.environment(TrainingConfig(allocator=value))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == value


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["tf32", "bf16-mixed"])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
def test_compiled_models_say_their_mode(mode: str, precision: str) -> None:
    """max-autotune with tf32 is the pair that raises when PyTorch's two interfaces disagree."""
    code = f"""
import sys
sys.path.append({str(WORKLOADS)!r})
import torch, tests_tiny_lm
from objectives import knobs
from objectives.config import TrainingConfig
from objectives.trial.setup import Setup
from objectives.trial.trainer import Trainer
device = torch.device("cuda", 0)
config = TrainingConfig(micro_batch_size=2, precision={precision!r}, compile={mode!r})
setup = Setup(device=device, workload=tests_tiny_lm.TinyLM().build(device, 0), config=config)
knobs.apply_all(setup)
setup.model.compile(**setup.compile_options)
trainer = Trainer(setup, max_grad_norm=1.0)
for _ in range(2):
    trainer.micro_step(trainer.place(setup.workload.longest(2)))
    trainer.update()
assert knobs.differences(setup) == [], knobs.differences(setup)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
