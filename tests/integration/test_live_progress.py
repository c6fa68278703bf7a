"""A short real study seen from outside while it runs: phase, rate and memory in the store, and gone afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from storage import runs, studies
from storage.database import Database
from storage.records import RunRecord

WORKLOADS = Path(__file__).parent.parent / "workloads"


def start(folder: Path) -> subprocess.Popen[bytes]:
    """``tuner run`` with one trial of some seconds, on an embedded store."""
    (folder / "tests_capacity.py").write_bytes((WORKLOADS / "tests_capacity.py").read_bytes())
    spec = {
        "study": "capacity",
        "objective": {"kind": "tests_capacity:Capacity", "settings": {"floor_seconds": 0.02}},
        "global_batch_size": 8,
        "baseline": {"micro_batch_size": 1},
        "search": {"micro_batch_size": [1, 2]},
        "limits": {"trials": 1, "window": "2.5s", "trial_time": "20s", "memory": "2GiB"},
    }
    (folder / "spec.yaml").write_text(json.dumps(spec), encoding="utf-8")
    own = {"TUNER_DATA_DIR": str(folder / "data"), "TUNER_CACHE_DIR": str(folder / "cache")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TUNER_")}
    command = [sys.executable, "-m", "tuner", "run", str(folder / "spec.yaml"), "--json"]
    return subprocess.Popen(
        command, env=kept | own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder
    )  # fmt: skip


def test_a_run_can_be_seen_from_outside_and_leaves_nothing_behind(tmp_path: Path) -> None:
    running = start(tmp_path)
    try:
        seen = _measuring(tmp_path, running)
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 130
    finally:
        running.kill()
        running.wait()
    assert seen["steps"] > 0
    assert 0 < seen["memory_bytes"] < 2 * 2**30
    assert 1 < seen["units_per_second"] < 1 / 0.02  # a micro-step of one sample sleeps for so long
    ended = _runs(tmp_path)
    assert [run.progress for run in ended] == [None] * len(ended) != []


def _measuring(folder: Path, running: subprocess.Popen[bytes]) -> Any:
    """The first moment of a measuring window that somebody else's process sees."""
    until = time.monotonic() + 90
    while running.poll() is None and time.monotonic() < until:
        for run in _runs(folder):
            if run.progress and run.progress["phase"] == "measure" and run.progress["units_per_second"]:
                return run.progress
        time.sleep(0.1)
    raise AssertionError(f"no run was seen measuring; the process ended with {running.poll()}")


def _runs(folder: Path) -> tuple[RunRecord, ...]:
    file = folder / "data" / "tightfit.db"
    if not file.exists():
        return ()
    database = Database.open(f"sqlite:///{file}")
    try:
        found = studies.find(database, "capacity") if database.check() == "current" else None
        return () if found is None else runs.list_of(database, study_id=found.id)
    finally:
        database.close()
