"""``tuner export`` as a person types it, on a study in a store of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from objectives.config import TrainingConfig
from objectives.knobs import config_key
from storage import runs, studies, trials
from storage.database import Database
from tuner import api, spec
from tuner.cli.outcome import run_command
from tuner.documents import EXPORT, missing
from tuner.export import NAMES
from tuner.export.handover import ExportRefused
from tuner.settings import Settings

GIB = 2**30
SPEC = {
    "study": "llama",
    "objective": {"kind": "mine:Tiny"},
    "global_batch_size": 16,
    "search": {"micro_batch_size": [1, 2, 4, 8], "precision": ["fp32", "bf16-mixed"]},
}
MEASURED = ((1, "fp32", 50.0, 1), (4, "bf16-mixed", 200.0, 2), (8, "bf16-mixed", 240.0, 4), (2, "fp32", 40.0, 8))
"""Micro-batch, precision, throughput and GiB of each trial."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [each for each in os.environ if each.startswith("TUNER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TUNER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with_study(Settings.from_environment())
    return tmp_path


def with_study(settings: Settings) -> None:
    asked = spec.read(SPEC)
    database = Database.open(settings.store_url)
    database.prepare()
    stored = studies.create(database, name="llama", spec=spec.to_mapping(asked), identity=spec.identity(asked))
    studies.set_facts(database, stored.id, {}, device="a CPU", memory_limit_bytes=6 * GIB)
    for micro, precision, throughput, size in MEASURED:
        measure(database, stored.id, TrainingConfig(
            micro_batch_size=micro, accumulation_steps=16 // micro, precision=precision,
        ), throughput, size * GIB)  # fmt: skip
    database.close()


def measure(database: Database, study: int, config: TrainingConfig, throughput: float, peak: int) -> None:
    trial = trials.reserve(
        database, study_id=study, config=config.to_mapping(), config_key=config_key(config), source="grid"
    )
    assert trial is not None
    run = f"00000000-0000-4000-8000-{trial.id:012d}"
    runs.start(database, id=run, study_id=study, trial_id=trial.id, purpose="search")
    hardware = {"threads": 2, "total_memory_bytes": 8 * GIB, "versions": {"torch": "2.13.0", "transformers": "5.24.0"}}
    runs.finish(
        database,
        run,
        outcome="completed",
        throughput=throughput,
        peak_memory_bytes=peak,
        seconds=9.0,
        hardware=hardware,
    )
    trials.finish(
        database, trial.id, outcome="completed", throughput=throughput, throughput_unit="samples_per_second",
        peak_memory_bytes=peak, seconds=9.0, windows=1,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A command run in this process through the entry that the script calls."""

    returncode: int
    stdout: str
    stderr: str


class Tuner:
    """Runs commands as typed; starting an interpreter for each would take longer than the work."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Ended:
        status = run_command(["export", "llama", *arguments])
        said = self._capsys.readouterr()
        return Ended(returncode=status, stdout=said.out, stderr=said.err)

    def document(self, *arguments: str) -> dict[str, Any]:
        ended = self(*arguments, "--json")
        assert ended.returncode == 0, ended.stderr
        document: dict[str, Any] = json.loads(ended.stdout)
        assert missing(document, EXPORT) == []
        assert len(ended.stdout.splitlines()) == 1
        return document


@pytest.fixture
def tuner(folder: Path, capsys: pytest.CaptureFixture[str]) -> Tuner:
    assert folder.is_dir()
    return Tuner(capsys)


@pytest.mark.parametrize("name", NAMES)
def test_every_format_answers_with_its_document(name: str, folder: Path) -> None:
    document = api.export("llama", name)
    assert missing(document, EXPORT) == []
    assert document["format"] == name
    assert document["files"]
    assert document["written"] == []
    assert list(folder.iterdir()) == [folder / "data"]
    json.dumps(document, allow_nan=False)


def test_files_go_to_the_folder_and_hold_the_fastest(folder: Path, tuner: Tuner) -> None:
    document = tuner.document("--to", "hf-trainer", "--output", "out")
    assert document["trial"] == 2
    assert sorted(path.name for path in (folder / "out").iterdir()) == sorted(document["files"])
    values = json.loads((folder / "out" / "training_args.json").read_text())
    assert values["per_device_train_batch_size"] * values["gradient_accumulation_steps"] == 16
    assert "not confirmed" in (folder / "out" / "NOTES.md").read_text()


def test_pick_memory_and_world_size(tuner: Tuner) -> None:
    assert tuner.document("--to", "json", "--pick", "smallest")["trial"] == 0
    assert tuner.document("--to", "json", "--memory", "3GiB")["trial"] == 1
    config = json.loads(tuner.document("--to", "json", "--world-size", "2")["files"]["configuration.json"])["config"]
    assert (config["micro_batch_size"], config["accumulation_steps"]) == (8, 1)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--to", "hf-trainer", "--world-size", "3"], 2, "these world sizes would: 1, 2"),
        (["--to", "keras"], 2, "there are hf-trainer"),
        (["--to", "json", "--memory", "100MiB"], 1, "the smallest needs 1.00 GiB"),
        (["--to", "json", "--pick", "best"], 2, "fastest, knee, smallest"),
        (["--to", "json", "--diff", "nowhere.json"], 2, "nowhere.json"),
        ([], 2, "--to"),
    ],
)
def test_what_cannot_be_is_said_in_a_line_and_nothing_is_written(
    arguments: list[str], status: int, said: str, folder: Path, tuner: Tuner
) -> None:
    ended = tuner(*arguments, "--output", "out", "--json")
    assert ended.returncode == status
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert json.loads(ended.stdout)["error"]["exit_status"] == status
    assert not (folder / "out").exists()


def test_a_refusal_reaches_the_python_door_as_an_exception(folder: Path) -> None:
    with pytest.raises(ExportRefused):
        api.export("llama", "torchtitan", world_size=5, output=folder / "out")
    assert not (folder / "out").exists()


def test_a_single_file_can_be_piped_and_the_rest_is_on_stderr(tuner: Tuner) -> None:
    ended = tuner("--to", "table")
    head, *rows = map(json.loads, ended.stdout.splitlines())
    assert (head["table"], head["global_batch_size"], len(rows)) == ("llama", 16, len(MEASURED))
    assert rows[0]["seconds"] == 9.0
    several = tuner("--to", "lightning")
    assert "==> lightning_trainer.json <==" in several.stdout
    assert "note: micro-batch 8 x accumulation 2" in several.stderr


def test_a_file_of_ones_own_stands_beside_it(folder: Path, tuner: Tuner) -> None:
    (folder / "mine.yaml").write_text("per_device_train_batch_size: 8\nbf16: 'false'\nwarmup_ratio: 0.1\n")
    diff = tuner.document("--to", "hf-trainer", "--diff", "mine.yaml")["diff"]
    assert {each["key"] for each in diff["problems"]} == {"bf16", "warmup_ratio", "per_device_train_batch_size"}
    shown = tuner("--to", "hf-trainer", "--diff", "mine.yaml").stdout
    assert "! warmup_ratio: no such key any more" in shown
    assert "  per_device_train_batch_size" in shown


def test_the_command_loads_neither_torch_nor_the_target(folder: Path) -> None:
    code = (
        "import sys; sys.argv = ['tuner', 'export', 'llama', '--to', 'hf-trainer', '--diff', 'mine.json', '--json']\n"
        "from tuner.cli import main\n"
        "try: main()\n"
        "except SystemExit as ended: assert not ended.code, ended.code\n"
        "print([name for name in ('torch', 'transformers', 'accelerate', 'optuna') if name in sys.modules])"
    )
    (folder / "mine.json").write_text('{"bf16": true}')
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout.splitlines()[-1] == "[]", ended.stderr
