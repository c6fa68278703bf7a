"""A study's answer found again, renewed, and run in the real trainers."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import tuner
from tuner import api
from tuner.cli.outcome import run_command
from tuner.documents import IN_TRAINER, RESULT, missing
from tuner.search.renewal import since_of

WORKLOADS = Path(__file__).parent.parent / "workloads"
LANGUAGE = {
    "study": "tiny",
    "objective": {
        "kind": "causal_lm",
        "model": {"config": {"model_type": "llama", "hidden_size": 128, "intermediate_size": 256,
                             "num_hidden_layers": 2, "num_attention_heads": 4}},
        "data": {"path": "stdlib", "tokenizer": {"train": {"vocab_size": 512}}, "sequence_length": 64,
                 "sample_bytes": 400_000},
    },
    "global_batch_size": 16,
    "baseline": {"micro_batch_size": 4, "activation_checkpointing": "selective"},
    "search": {"micro_batch_size": [4]},
    "limits": {"memory": "80%", "trials": 1, "time": "60s", "trial_time": "60s", "window": "1s"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TUNER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TUNER_DATABASE_URL", raising=False)


def test_a_renewed_confirmation_is_the_answer_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tests_capacity.py").write_bytes((WORKLOADS / "tests_capacity.py").read_bytes())
    monkeypatch.chdir(tmp_path)
    first = api.run({
        "study": "capacity", "objective": {"kind": "tests_capacity:Capacity"}, "global_batch_size": 8,
        "baseline": {"micro_batch_size": 1}, "search": {"micro_batch_size": [1]},
        "limits": {"trials": 1, "window": "0.2s", "trial_time": "20s", "memory": "2GiB"},
    }).to_json()  # fmt: skip
    assert first["best"]["confirmed"]
    old = [run.id for run in api.view("capacity").history.runs if run.purpose == "confirm"]
    assert old
    assert run_command(["confirm", "capacity", "--json"]) == 0
    renewed = json.loads(capsys.readouterr().out)
    assert missing(renewed, RESULT) == []
    view = api.view("capacity")
    counted = [run for run in view.history.runs if run.purpose == "confirm"]
    assert not {run.id for run in counted} & set(old), "only the new runs count"
    assert {run.id for run in view.runs} > set(old), "the old ones are kept"
    since = since_of(view.study.facts)
    assert since is not None
    assert all(run.started_at >= since for run in counted)
    assert renewed["best"]["confirmed"]
    assert renewed["status"] == "finished"
    found = tuner.best_config("capacity")
    assert (found.trial, found.stale, found.exact) == (renewed["best"]["number"], (), True)
    assert found.throughput == pytest.approx(renewed["best"]["throughput"])


def readme_section() -> str:
    text = (Path(__file__).parent.parent.parent / "README.md").read_text(encoding="utf-8")
    return re.split(r"^## ", text.partition("## Hand it to your trainer")[2], flags=re.MULTILINE)[0]


def test_the_readmes_job_falls_back_to_its_own_settings() -> None:
    names: dict[str, Any] = {}
    exec(re.findall(r"^```python\n(.*?)^```", readme_section(), flags=re.MULTILINE | re.DOTALL)[0], names)
    assert (names["best"], names["micro"]) == (None, 4)


@pytest.mark.slow
def test_the_readmes_commands_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "use_cpu": True, "output_dir": "o"}
    (tmp_path / "training_args.json").write_text(json.dumps(arguments))
    config = {"model_type": "llama", **LANGUAGE["objective"]["model"]["config"]}
    (tmp_path / "my-model").mkdir()
    (tmp_path / "my-model" / "config.json").write_text(json.dumps({**config, "vocab_size": 512}))
    commands = [
        shlex.split(line, comments=True)[1:] for line in readme_section().splitlines() if line.startswith("tuner ")
    ]
    assert [each[0] for each in commands] == ["init", "run", "export", "confirm", "lookup"]
    for words in commands:
        if words[0] == "run":
            _fill_in(tmp_path / "my-model.yaml")
        shorter = ["--steps", "6"] if words[0] == "confirm" else []
        words = [word.replace("2048", "128") for word in words if word not in ("--device", "H100")]
        assert run_command([*words, *shorter]) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert "The nearest that was measured" in said
    assert "rows of 64 tokens, not of 128" in said


def _fill_in(spec: Path) -> None:
    """What the user writes into the places, and a study short enough for a test."""
    text = spec.read_text(encoding="utf-8")
    model, data = LANGUAGE["objective"]["model"], LANGUAGE["objective"]["data"]
    text = text.replace("  data:", f"  model: {json.dumps(model)}\n  data:")
    text = re.sub(r"    # FILL IN the training text:.*", f"    path: {data['path']}", text)
    text = re.sub(r"    # FILL IN the tokens.*", "    sequence_length: 64\n    sample_bytes: 400000", text)
    text = re.sub(r"    # tokenizer:.*", "    tokenizer: {train: {vocab_size: 512}}", text)
    text = re.sub(r"limits: .*", "limits: {trials: 2, time: 60s, window: 1s}", text)
    spec.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A real, tiny language model's study, in a store of this module's own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("language")
        patch.setenv("TUNER_DATA_DIR", str(folder / "data"))
        patch.setenv("TUNER_CACHE_DIR", str(folder / "cache"))
        patch.delenv("TUNER_DATABASE_URL", raising=False)
        assert api.run(LANGUAGE).to_json()["best"] is not None
        yield folder


@pytest.mark.slow
@pytest.mark.case("I07", "I14")
@pytest.mark.parametrize("name", ["hf-trainer", "lightning"])
def test_the_exported_files_in_the_real_trainer(
    name: str, language: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNER_DATA_DIR", str(language / "data"))
    monkeypatch.setenv("TUNER_CACHE_DIR", str(language / "cache"))
    status = run_command(["confirm", "tiny", "--with", name, "--steps", "20", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert status == 0
    assert missing(found, IN_TRAINER) == []
    assert (found["steps"], found["samples_per_step"], found["micro_batches_per_step"]) == (20, 16, [4])
    assert found["as_exported"] is True
    parts = found["seconds"]
    assert sum(parts[each] for each in ("compute", "optimizer", "data", "trainer")) == pytest.approx(
        parts["wall"], rel=0.05
    )
    assert all(part >= 0 for part in parts.values())
    near = abs(found["of_own_loop"] - 1) <= 0.10
    assert near or found["own_loop_moved"] > 0.05 or found["overhead_share"] > 0.05, "within 10 %, or said why"
    assert 0.7 <= found["peak_memory_bytes"] / found["study_peak_memory_bytes"] <= 1.3
    code = {each["knob"] for each in found["in_code"]}
    assert "activation_checkpointing" in code, "selective is code, and in effect"
    sound = api.view("tiny")
    assert [run.outcome for run in sound.runs if run.purpose == "trainer"][-3:] == ["completed"] * 3
    assert sound.answer.best is not None, "a trainer's run is no measurement of the study's"
