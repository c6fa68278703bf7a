"""``tuner estimate``: the whole space predicted without a trial, and predictions beside the study's measurements."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tuner.documents import ESTIMATE, missing

SPEC = {
    "study": "tiny",
    "objective": {
        "kind": "causal_lm",
        "model": {"config": {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
                             "num_hidden_layers": 2, "num_attention_heads": 4}},
        "data": {"path": "*.txt", "tokenizer": {"train": {"vocab_size": 512}}, "sequence_length": 64},
    },
    "global_batch_size": 16,
    "baseline": {"micro_batch_size": 2},
    "search": {"micro_batch_size": [2, 16], "activation_checkpointing": ["none", "full"]},
    "limits": {"memory": "1GiB", "trials": 2, "window": "0.5s", "time": "45s"},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TUNER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TUNER_DATABASE_URL", raising=False)
    for number in range(30):
        (tmp_path / f"{number}.txt").write_text("the quick brown fox jumps over the lazy dog\n" * (20 + number))
    (tmp_path / "spec.yaml").write_text(json.dumps(SPEC))
    return tmp_path


def tuner(folder: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tuner", *arguments, "--json"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_predictions_come_first_and_stand_beside_the_measurements(folder: Path) -> None:
    answer = tuner(folder, "estimate", "spec.yaml")
    assert missing(answer, ESTIMATE) == []
    assert answer["counts"] == {"fits": 4, "doubtful": 0, "misfits": 0, "unknown": 0}
    by_config = {
        (each["config"]["micro_batch_size"], each["config"]["activation_checkpointing"]): each
        for each in answer["estimates"]
    }
    large, small = by_config[16, "none"], by_config[2, "none"]
    assert large["predicted_peak_memory_bytes"] > small["predicted_peak_memory_bytes"]
    assert set(large["categories"]) >= {"parameters", "activations"}
    low, high = large["predicted_interval"]
    assert low <= large["predicted_peak_memory_bytes"] <= high
    smaller = tuner(folder, "estimate", "spec.yaml", "--memory", "20MiB")
    assert smaller["counts"]["misfits"] + smaller["counts"]["doubtful"] == 4
    shutil.rmtree(folder / "cache")  # a cache may be deleted at any time: it is prepared again
    baseline = tuner(folder, "run", "spec.yaml")["baseline"]
    assert baseline["outcome"] == "completed"
    assert baseline["predicted_peak_memory_bytes"] > 0
    assert abs(baseline["predicted_peak_memory_bytes"] / baseline["peak_memory_bytes"] - 1) < 0.5
