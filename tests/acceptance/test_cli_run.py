"""``tuner run`` on a small objective of one's own, in a folder full of other people's module names: Ctrl-C, then on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tuner.documents import LISTED, RESULT, TRIAL, missing

SCRIPT = Path(sys.executable).with_name("tuner")
OBJECTIVE = """
import torch
from torch import nn


class Tiny:
    unit = "samples"

    def __init__(self, width):
        self.width = width

    def build(self, device, seed):
        torch.manual_seed(seed)
        return Work(nn.Sequential(nn.Linear(8, self.width), nn.Linear(self.width, 1)).to(device))


class Work:
    def __init__(self, model):
        self.model = model

    def dataset(self):
        return [torch.full((8,), float(index % 7)) for index in range(256)]

    def collate(self, samples):
        return torch.stack(samples)

    def loss(self, model, batch):
        return (model(batch) - 1).square().sum(), len(batch)

    def longest(self, micro_batch_size):
        return torch.ones(micro_batch_size, 8)
"""
SPEC = """\
study: tiny
objective: {kind: "mine:Tiny", settings: {width: 64}}
global_batch_size: 8
baseline: {micro_batch_size: 1}
search: {micro_batch_size: [1, 8]}
limits: {trials: 2, window: 0.5s, trial_time: 60s}
device: cpu
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(OBJECTIVE)
    (tmp_path / "study.yaml").write_text(SPEC)
    for name in ("ui", "rich", "sqlalchemy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the working folder was imported')\n")
    for package in ("storage", "objectives", "tests"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('a package of the working folder')\n")
    return tmp_path


def variables(folder: Path) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("TUNER_")}
    return {**own, "TUNER_DATA_DIR": str(folder / ".data"), "TUNER_CACHE_DIR": str(folder / ".cache")}


def tuner(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, *arguments],
        cwd=folder,
        env=variables(folder),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def document(ended: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def until_a_trial_completed(stderr: Iterator[str]) -> None:
    for line in stderr:
        if "trial  0  completed" in line:
            return
    raise AssertionError("no trial completed")


@pytest.mark.case("B14")
def test_ctrl_c_keeps_everything_the_same_command_goes_on_and_another_batch_is_another_study(folder: Path) -> None:
    interrupted = subprocess.Popen(
        [SCRIPT, "run", "study.yaml", "--json"],
        cwd=folder, env=variables(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert interrupted.stderr is not None
    until_a_trial_completed(interrupted.stderr)
    begun = time.monotonic()
    interrupted.send_signal(signal.SIGINT)
    out, err = interrupted.communicate(timeout=60)
    assert interrupted.returncode == 130, err
    assert time.monotonic() - begun < 30
    stopped = json.loads(out)
    assert stopped["status"] == "paused"
    assert stopped["baseline"]["outcome"] == "completed"

    result = document(tuner(folder, "run", "study.yaml", "--json", "--quiet"))
    assert missing(result, RESULT) == []
    assert missing(result["baseline"], TRIAL) == []
    assert (result["status"], result["best"]["confirmed"]) == ("finished", True)
    assert sum(result["counts"].values()) == 2
    assert result["baseline"]["config"]["accumulation_steps"] == 8

    shown = document(tuner(folder, "show", "tiny", "--json"))
    assert shown == result
    assert document(tuner(folder, "front", "tiny", "--json")) == {"study": "tiny", "trials": result["front"]}
    (listed,) = document(tuner(folder, "list", "--json"))["studies"]
    assert missing(listed, LISTED) == []
    assert "tuner front tiny" in tuner(folder, "show", "tiny").stdout

    (folder / "study.yaml").write_text(SPEC.replace("global_batch_size: 8", "global_batch_size: 16"))
    refused = tuner(folder, "run", "study.yaml")
    assert refused.returncode == 2
    assert "global_batch_size: 8 in the store, 16 in the spec" in refused.stderr


def test_an_objective_that_is_not_there_is_two_and_no_traceback(folder: Path) -> None:
    (folder / "study.yaml").write_text(SPEC.replace("mine:Tiny", "mine:Huge"))
    ended = tuner(folder, "run", "study.yaml", "--json")
    assert ended.returncode == 2, ended.stderr
    assert "Huge" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert json.loads(ended.stdout)["error"]["exit_status"] == 2
