"""``tuner init`` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tuner.cli.outcome import run_command
from tuner.documents import INIT, missing

ARGUMENTS = {"output_dir": "out", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "bf16": True,
             "optm": "adamw_torch"}  # fmt: skip


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "args.json").write_text(json.dumps(ARGUMENTS, indent=1))
    return tmp_path


def test_the_spec_is_on_stdout_and_what_is_wrong_on_stderr(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["init", "--from", "args.json"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("# Made by `tuner init` from args.json")
    assert "problem: args.json:6: optm: unknown key; did you mean 'optim'?" in said.err
    assert "fill in objective.model: the model" in said.err


@pytest.mark.case("I05")
def test_what_has_to_be_filled_in_is_refused_by_name(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["init", "--from", "args.json", "--output", "spec.yaml"]) == 0
    assert "wrote spec.yaml" in capsys.readouterr().err
    assert run_command(["run", "spec.yaml"]) == 2
    said = capsys.readouterr().err
    for place in ("objective.model", "objective.data.path", "objective.data.sequence_length"):
        assert f"{place}: the key" in said


def test_the_document_and_the_errors(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["init", "--from", "args.json", "--world-size", "2", "--study", "mine", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert missing(document, INIT) == []
    assert (document["study"], document["global_batch_size"], document["world_size"]) == ("mine", 32, 2)
    for wrong in (["--from", "nothing.json"], ["--from", "args.json", "--format", "x"], ["--from", "args.json",
                  "--world-size", "0"], []):  # fmt: skip
        assert run_command(["init", *wrong]) == 2
        capsys.readouterr()
