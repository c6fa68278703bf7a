"""A grid recorded as studies on this machine's CPU, in two sittings, with a cap."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.recording.cpu import Recording, record
from benchmarks.recording.grids import Grid
from objectives.measure.hardware import cores
from storage import studies, trials
from storage.database import Database
from tuner import spec as specs
from tuner.errors import StudyError
from tuner.settings import Settings
from tuner.stop import Stop

WORKLOADS = Path(__file__).parents[1] / "workloads"


class Sitting:
    """Recordings of one grid into one folder, each ended after some runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = Settings(data_dir=folder / "data", cache_dir=folder / "cache")
        self.settings.data_dir.mkdir()
        self.database = Database.open(self.settings.store_url)
        self.database.prepare()
        (folder / "tests_capacity.py").write_bytes((WORKLOADS / "tests_capacity.py").read_bytes())
        (folder / "spec.yaml").write_text(json.dumps(SPEC), encoding="utf-8")

    def record(self, runs: int = 1000, on_cores: int | None = None) -> list[Path]:
        stop, said = Stop(), 0

        def say(_text: str) -> None:
            nonlocal said
            said += 1
            if said > runs:
                stop.set()

        recording = Recording(
            grid=Grid(name="capacity", set="dev", cores=on_cores or cores()),
            spec=specs.read(self.folder / "spec.yaml", settings=self.settings),
            database=self.database, folder=self.settings.data_dir, out=self.folder / "tables", repeats=1, stop=stop,
            say=say,
        )  # fmt: skip
        return record(recording)


SPEC: dict[str, Any] = {
    "study": "capacity",
    "objective": {"kind": "tests_capacity:Capacity", "settings": {"mib_per_sample": 4, "floor_seconds": 0.05}},
    "global_batch_size": 24,
    "baseline": {"micro_batch_size": 1},
    "search": {"micro_batch_size": [1, 4, 8, 24]},
    "limits": {"trials": 100, "window": "0.2s", "target_half_width": "0%", "trial_time": "60s", "memory": "2GiB"},
    "sampler": "grid",
    "device": "cpu",
}


@pytest.fixture
def sitting(tmp_path: Path) -> Iterator[Sitting]:
    made = Sitting(tmp_path)
    yield made
    made.database.close()


@pytest.fixture(autouse=True)
def quick_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.recording.cpu.WARM_LOAD_SECONDS", 0.0)


def table(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    head, *rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return head, rows


def test_a_grid_is_recorded_in_two_sittings(sitting: Sitting) -> None:
    assert sitting.record(runs=3) == []
    study = studies.find(sitting.database, "capacity")
    assert study is not None
    before = [each.id for each in trials.list_of(sitting.database, study.id) if each.outcome == "completed"]
    assert 2 <= len(before) <= 3
    paths = sitting.record()
    assert paths[0].name == "capacity.jsonl"
    assert len(paths) >= 2
    after = [each.id for each in trials.list_of(sitting.database, study.id) if each.outcome == "completed"]
    assert after[: len(before)] == before
    head, rows = table(paths[0])
    assert (head["table"], head["grid"], head["cores"]) == ("capacity", "capacity", cores())
    assert head["baseline"] == rows[0]["config"]
    assert sorted(row["config"]["micro_batch_size"] for row in rows) == [1, 4, 8, 24]
    assert all(row["outcome"] == "completed" for row in rows)
    assert head["noise"]["degrees_of_freedom"] >= 1
    cut_head, cut = table(paths[1])
    limit = cut_head["memory_limit_bytes"]
    misfits = [row for row in cut if row["outcome"] == "device_oom"]
    assert cut_head["table"] == f"capacity@{limit // 2**20}MiB"
    assert misfits
    assert all(row["outcome_source"] == "measured" and row["throughput"] is None for row in misfits)
    assert all(row["peak_memory_bytes"] <= limit for row in cut if row["outcome"] == "completed")


def test_a_machine_with_other_cores_is_refused(sitting: Sitting) -> None:
    with pytest.raises(StudyError, match=r"recorded on 64 core\(s\)"):
        sitting.record(on_cores=64)
