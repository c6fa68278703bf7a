"""How much of a worker's wall time is training? A study with a fixed 8-second window, compile off.

    python -m benchmarks.overhead [TRIALS]

Counted as training: warm-up, window and the comparison with batches in place, by the children's own clocks, and the
worst case's steps. The rest is starting, building, loading, storing and deciding. Preparation is left out: it is once a
study.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from typing import Any

from benchmarks.bench import QUICKSTART, print_json, say

SECONDS = 8.0


def main(trials: int = 8) -> dict[str, Any]:
    """Runs the study in a store of its own and returns the share, by kind of run."""
    os.environ["TUNER_DATA_DIR"] = tempfile.mkdtemp(prefix="tightfit-bench-")
    from storage import runs, studies
    from storage.database import Database
    from tuner import api
    from tuner import spec as specs
    from tuner.settings import Settings

    asked = specs.read(QUICKSTART)
    limits = replace(asked.limits, trials=trials, time_seconds=None, window_seconds=SECONDS, target_half_width=0.0)
    api.run(
        replace(asked, limits=limits), on_progress=lambda fact: say(str(fact)[:100]) if "Ended" in str(fact) else None
    )
    database = Database.open(Settings.from_environment().store_url)
    study = studies.find(database, asked.study)
    assert study is not None
    done = [run for run in runs.list_of(database, study_id=study.id) if run.outcome == "completed" and run.measurement]
    begun, ended = min(run.started_at for run in done), max(run.finished_at or run.started_at for run in done)
    wall = (ended - begun).total_seconds()
    training = sum(training_seconds(run.measurement) for run in done)
    return {"runs": len(done), "wall_seconds": wall, "training_seconds": training, "share": training / wall,
            "target": 0.8, "met": training / wall >= 0.8}  # fmt: skip


def training_seconds(measurement: Any) -> float:
    """Seconds inside training steps of one run."""
    return float(sum(measurement[f"{part}_seconds"] for part in ("worst_case", "warm_up", "window", "stall")))


if __name__ == "__main__":
    print_json(main(*map(int, sys.argv[1:])))
