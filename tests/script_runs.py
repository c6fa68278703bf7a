"""Real runs of small scripts for tests, through the same launcher and runner as every other run."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from objectives.contract import ObjectiveReference
from objectives.trial.protocol import RunRequest, WindowPlan
from tuner.work.launcher import Launcher
from tuner.work.runner import Deadlines, RunEnd, execute

SCRIPTS = Path(__file__).parent / "workloads" / "scripts"
EXAMPLES = Path(__file__).parents[1] / "examples" / "scripts"
QUIET = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
TINY = ["python", "tiny.py", "--batch", "{micro_batch_size}", "--accumulate", "{accumulation_steps}"]
WINDOW = WindowPlan(min_seconds=0.2, max_seconds=0.4)


def run_script(
    folder: Path,
    command: list[str],
    *,
    config: dict[str, Any] | None = None,
    scripts: Path = SCRIPTS,
    settings: dict[str, Any] | None = None,
    seconds: float = 90.0,
    **request: Any,
) -> RunEnd:
    made = {"command": command, "environment": QUIET, **(settings or {})}
    asked = RunRequest(
        run=str(uuid.uuid4()),
        objective=ObjectiveReference(kind="script", settings=made, folder=str(scripts)),
        config={"micro_batch_size": 2, "accumulation_steps": 1, **(config or {})},
        **{"purpose": "search", "window": WINDOW, "global_batch_size": 2, **request},
    )
    with Launcher() as launcher:
        return execute(launcher, asked, folder / "log", Deadlines(trial_seconds=seconds, compile_seconds=60.0))


def log_of(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace")
