"""The recorder for GPU machines, on the CPU, where Optuna, the store's packages and pydantic are missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

WORKLOADS = Path(__file__).parents[1] / "workloads"
CAP_MIB = 70

SITTING = """
import sys, time

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("optuna", "sqlalchemy", "alembic", "pydantic", "psutil", "scipy", "ruamel"):
            raise ModuleNotFoundError(f"{name} is not installed on this machine")

sys.meta_path.insert(0, Missing())
from pathlib import Path
from benchmarks.recording.device import Sitting, record
from benchmarks.recording.device_grids import DeviceGrid
from benchmarks.recording.journal import Journal
from tuner.work.lane import choose_devices

folder, most = Path(sys.argv[1]), int(sys.argv[2])
grid = DeviceGrid(
    name="tiny", kind="tests_capacity:Capacity", settings={"mib_per_sample": 6, "floor_seconds": 0.05},
    global_batch_size=16, search={"micro_batch_size": (1, 2, 4, 8, 16)},
    baseline={"micro_batch_size": 1}, caps=(70 * 2**20,), window_seconds=0.2, warm_load_seconds=0.0,
)
sitting = Sitting(
    grid=grid, device=choose_devices("cpu")[0], journal=Journal(folder / "journal.jsonl"), folder=folder / "work",
    say=lambda _text: None, repeats=1,
)
append = sitting.journal.append

def counted(entry):
    append(entry)
    if len(sitting.journal.of_kind("run")) >= most:
        sitting.stopped = True

sitting.journal.append = counted
try:
    print(len(record(sitting, folder / "tables")))
finally:
    sitting.close()
"""


def sit(folder: Path, most: int) -> str:
    (folder / "work").mkdir(parents=True, exist_ok=True)
    (folder / "work" / "tests_capacity.py").write_bytes((WORKLOADS / "tests_capacity.py").read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", SITTING, str(folder), str(most)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def table(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    head, *rows = (json.loads(line) for line in path.read_text().splitlines())
    return head, rows


def test_a_table_is_recorded_in_two_sittings_over_objectives_alone(tmp_path: Path) -> None:
    assert sit(tmp_path, 4) == "0"
    journal = tmp_path / "journal.jsonl"
    first = journal.read_text()
    journal.write_text(first + '{"kind": "run", "key": "torn')  # the machine went down while it wrote
    assert sit(tmp_path, 1000) == "2"
    assert journal.read_text().startswith(first)
    head, rows = table(tmp_path / "tables" / "tiny.jsonl")
    assert head["grid"] == "tiny"
    assert head["throughput_unit"] == "samples_per_second"
    assert head["baseline"] == rows[0]["config"]
    assert len(rows) == 5
    assert all(row["outcome"] == "completed" and row["setup_seconds"] > 0 and row["step_seconds"] for row in rows)
    assert sum(len(row["runs"]) > 1 for row in rows) >= 1
    _, cut = table(tmp_path / "tables" / "tiny@70MiB.jsonl")
    by_size = {row["config"]["micro_batch_size"]: row for row in cut}
    assert by_size[16]["outcome"] == "device_oom"
    assert by_size[8]["outcome"] == "completed"
    assert all(row["peak_memory_bytes"] <= CAP_MIB * 2**20 for row in cut if row["outcome"] == "completed")
    assert {row["outcome_source"] for row in cut} <= {"measured", "cut"}
