"""A template filled with a configuration, and everything that cannot work between it and a spec's knobs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from objectives.config import TrainingConfig
from objectives.script.grammar import GrammarError
from objectives.script.patching import patched
from objectives.script.template import Filled, Template, problems

BATCH = ["python", "train.py", "{micro_batch_size}", "{accumulation_steps}"]
PRECISION = {"precision": {"bf16-mixed": ["--bf16", "True"], "fp32": ""}}


def fill(settings: dict[str, Any], folder: Path, **config: Any) -> Filled:
    made = TrainingConfig(micro_batch_size=4, accumulation_steps=2).with_values(**config)
    return Template.of(settings).fill(made, global_batch_size=8, seed=3, folder=folder, run_folder=folder / "run")


def found(settings: dict[str, Any], searched: dict[str, Any], baseline: dict[str, Any] | None = None) -> list[str]:
    given = problems(Template.of(settings), searched, baseline or {})
    return [f"{'.'.join(map(str, path))}: {reason}" for path, reason, _ in given]


def test_knobs_and_what_follows_from_them_are_filled_in(tmp_path: Path) -> None:
    settings = {
        "command": [*BATCH, "--seed={seed}", "{precision}", "--all", "{global_batch_size}", 7, "--out={run_folder}"],
        "environment": {"WORKERS": "{loader_workers}"},
        "words": PRECISION,
    }
    filled = fill(settings, tmp_path, precision="bf16-mixed", loader_workers=3)
    assert filled.arguments == (
        "python",
        "train.py",
        "4",
        "2",
        "--seed=3",
        "--bf16",
        "True",
        "--all",
        "8",
        "7",
        f"--out={tmp_path}/run",
    )
    assert filled.environment == {"WORKERS": "3"}
    assert fill(settings, tmp_path).arguments[5:7] == ("--all", "8")  # fp32 is no word at all


def test_a_patched_copy_keeps_comments_types_and_the_file_itself(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("# mine\ntraining:\n  micro_batch: 1  # small\n  stages: [{size: 1}, {size: 2}]\n  bf16: no\n")
    before = file.read_text()
    settings = {
        "command": [*BATCH, "{patched_file}"],
        "patch": {
            "file": "config.yaml",
            "values": {
                "training.micro_batch": "{micro_batch_size}",
                "training.stages.1.size": "{accumulation_steps}",
                "training.bf16": {"precision": {"bf16-mixed": True, "fp32": False}},
                "training.name": "run-{micro_batch_size}",
                "training.keep": None,
            },
        },
    }
    filled = fill(settings, tmp_path, precision="bf16-mixed")
    assert filled.file is not None
    name, text = filled.file
    assert filled.arguments[-1] == str(tmp_path / "run" / name)
    assert "# mine" in text
    assert "micro_batch: 4  # small" in text
    assert "bf16: true" in text
    assert "name: run-4" in text
    assert YAML(typ="safe").load(text)["training"]["stages"] == [{"size": 1}, {"size": 2}]  # accumulation is 2
    assert file.read_text() == before


def test_json_is_patched_as_json(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"a": {"b": 1}}')
    assert json.loads(patched(tmp_path / "c.json", {"a.b": 4, "a.c": True})) == {"a": {"b": 4, "c": True}}


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("a: {b: 1}", "x.b", "has no 'x'"),
        ("a: 1", "a.b", "no mapping"),
        ("a: [1]", "a.3", "has no '3'"),
        ("a: [1, ", "a", "is not YAML"),
        ("!!python/object/apply:os.system ['id']", "a", "has no 'a'"),  # read as data: nothing is constructed
    ],
)
def test_a_file_that_cannot_be_patched_so_says_where(tmp_path: Path, text: str, key: str, words: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(GrammarError, match=words):
        patched(tmp_path / "c.yaml", {key: 1})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(GrammarError, match=r"cannot be read.*nowhere\.yaml"):
        patched(tmp_path / "nowhere.yaml", {"a": 1})


@pytest.mark.parametrize(
    ("settings", "searched", "baseline", "words"),
    [
        ({"command": BATCH}, {"compile": ["off"]}, {}, "'compile' is searched, and the template does not use it"),
        ({"command": BATCH}, {}, {"precision": "fp32"}, "baseline sets 'precision'"),
        ({"command": ["python", "{batch}"]}, {}, {}, r"\{batch\} is no knob"),
        ({"command": ["python", "{micro_batch_size}"]}, {"micro_batch_size": [1]}, {}, "how many micro-batches make"),
        ({"command": ["python", "train.py"]}, {}, {}, "nothing says the script's micro-batch size"),
        ({"command": BATCH, "words": PRECISION}, {}, {}, r"words.precision: the template does not use"),
        ({"command": BATCH, "words": {"speed": {"fast": "x"}}}, {}, {}, "'speed' is no knob"),
        (
            {"command": [*BATCH, "{precision}"], "words": PRECISION},
            {"precision": ["fp32", "bf16-true"]},
            {},
            "precision=bf16-true may be run, and has no words",
        ),
        (
            {"command": [*BATCH, "--p={precision}"], "words": PRECISION},
            {"precision": ["fp32", "bf16-mixed"]},
            {},
            "needs exactly one word",
        ),
        ({"command": [*BATCH, "{patched_file}"]}, {}, {}, "nothing is patched"),
        ({"command": BATCH, "patch": {"file": "c", "values": {"a": 1}}}, {}, {}, "never read the patched copy"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_found_before_anything_runs(
    settings: dict[str, Any], searched: dict[str, Any], baseline: dict[str, Any], words: str
) -> None:
    assert any(re.search(words, text) for text in found(settings, searched, baseline)), found(
        settings, searched, baseline
    )


def test_what_works_has_no_problem() -> None:
    settings = {"command": [*BATCH, "{precision}"], "words": PRECISION}
    searched = {"micro_batch_size": [1, 2], "precision": ["fp32", "bf16-mixed"]}
    assert found(settings, searched, {"precision": "fp32"}) == []
    own = {"command": ["python", "train.py", "--workers", "{loader_workers}"]}
    assert found(own, {"loader_workers": [0, 2]}, {"micro_batch_size": 8}) == []
