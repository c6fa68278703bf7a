"""``tuner.tune`` with real children: from a notebook-like session, and again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import tuner
from tuner import api, confirming
from tuner.errors import TightfitError
from tuner.function.travel import CannotTravel

ROOT = Path(__file__).parent.parent.parent
QUICK = {"trials": 1, "window": "0.2s", "trial_time": "20s", "time": None, "memory": "2GiB"}
CELL = """
import torch
from torch import nn
WIDTH = 16
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
    def forward(self, values):
        for layer in self.layers:
            values = torch.relu(layer(values))
        return values
def make_training():
    values = torch.randn(64, WIDTH)
    dataset = torch.utils.data.TensorDataset(values, values)
    return Net(), dataset, lambda model, batch: nn.functional.mse_loss(model(batch[0]), batch[1])
"""


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TUNER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TUNER_DATABASE_URL", raising=False)


def of_a_cell() -> Any:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(CELL, names)
    return names["make_training"]


@pytest.mark.case("B07")
def test_a_notebooks_function_is_tuned_and_the_same_call_answers_again(tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "global_batch_size": 8, "limits": QUICK, "progress": False,
        "search": {"micro_batch_size": [1, 4, 8], "activation_checkpointing": ["none", "full"], "attention": ["sdpa"]},
    }  # fmt: skip
    result = tuner.tune(of_a_cell(), **asked)
    assert result.best is not None
    assert result.config["micro_batch_size"] * result.config["accumulation_steps"] == 8
    assert {row["micro_batch_size"] * row["accumulation_steps"] for row in result.front} == {8}
    assert "find_executable_batch_size, from 8 down" in str(result.instead_of)
    assert result.plot().save(tmp_path / "front.svg").stat().st_size > 500
    exported = json.loads(result.export("hf-trainer")["files"]["training_args.json"])
    assert exported["per_device_train_batch_size"] * exported["gradient_accumulation_steps"] == 8
    json.dumps(result.to_json(), allow_nan=False)
    stored = api.view(result.study)
    assert "relu" not in json.dumps([stored.study.spec, stored.study.facts], default=str), (
        "only a fingerprint is stored"
    )
    assert list((tmp_path / "data" / "functions").iterdir()) == []
    again = tuner.tune(of_a_cell(), **asked)
    assert (again.study, len(again.trials)) == (result.study, len(result.trials))
    with pytest.raises(TightfitError, match=r"never stores it"):
        confirming.confirm(result.study)


def test_what_cannot_be_tuned_is_refused_before_anything_runs(tmp_path: Path) -> None:
    lock = threading.Lock()
    with pytest.raises(CannotTravel, match="'lock'"):
        tuner.tune(lambda: lock, global_batch_size=8, progress=False)
    with pytest.raises(TightfitError, match="is no function"):
        tuner.tune(3, global_batch_size=8)  # type: ignore[arg-type]
    with pytest.raises(TightfitError, match="micro_batch_size"):
        tuner.tune(of_a_cell(), global_batch_size=8, search={"micro_batch_size": [3]}, progress=False)


def test_a_function_that_returns_no_training_is_said_in_its_words() -> None:
    with pytest.raises(TightfitError, match="returned a NoneType without model"):
        tuner.tune(lambda: None, global_batch_size=8, limits=QUICK, progress=False)


@pytest.mark.slow
def test_the_example_runs_as_a_plain_script(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "tune_function.py")],
        cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "global batch 64 kept" in done.stdout
    assert "find_executable_batch_size" in done.stdout
    assert (tmp_path / "tune_function.svg").is_file()
