"""``tuner profile``: some steps of one trial's configuration under a tool, its files kept below the data folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.answer.profile import NSIGHT, command_of, document, reading
from tuner.errors import TightfitError
from tuner.work.lane import new_run_id
from tuner.work.longer_runs import Bench, Order, keep, perform, require_done, say

PROFILE_SECONDS = 600.0
"""Nsight Compute replays every kernel many times."""


def profile(bench: Bench, *, number: int | None, tool: str) -> dict[str, Any]:
    """Profiles a trial's configuration.

    Args:
        bench: The study.
        number: The trial; None for the winner.
        tool: One of :data:`tuner.answer.profile.TOOLS`.

    Raises:
        StudyError: There is no such trial.
        TightfitError: The tool is missing (the message says how to get it), or the run failed.
    """
    bench.require_workload("profile")
    trial = bench.winner if number is None else bench.trial(number)
    program = program_of(tool, bench.session.lane.device.kind)
    run = new_run_id()
    folder = artifacts_folder(bench.folder, bench.view.study.id, run)
    folder.mkdir(parents=True)
    say(bench, f"profiling trial {trial.number} with {tool}; a profiled run is never a measurement")
    order = Order(
        purpose="profile",
        trial=trial,
        answer={"tool": tool, "folder": str(folder)},
        seconds=PROFILE_SECONDS,
        prefix=command_of(tool, program, folder),
        run=run,
    )
    done = perform(bench, order)
    found: Mapping[str, Any] = done.end.answers[-1] if done.end.answers else {}
    files = listing(folder)
    keep(bench, done, {**found, "files": [each["path"] for each in files]} if found else {})
    if not files:
        folder.rmdir()
    require_done(done, f"the profile with {tool}")
    return document(
        found, files, study=bench.view.study.name, trial=trial.number, run=run, folder=str(folder)
    )  # fmt: skip


def program_of(tool: str, device_kind: str) -> str:
    """Path of a tool's program; empty for the tools inside PyTorch.

    Raises:
        TightfitError: It is not installed, or cannot look at this device.
    """
    needed = NSIGHT.get(tool)
    if needed is None:
        return ""
    if device_kind != "cuda":
        raise TightfitError(f"{needed.title} looks at NVIDIA GPUs, and this study is on a CPU: use `--with torch`")
    found = shutil.which(needed.program)
    if found is None:
        raise TightfitError(f"{needed.title} ({needed.program}) is not installed here: {needed.get}")
    return found


def artifacts_folder(data: Path, study_id: int, run: str) -> Path:
    """Where the files of a run are kept."""
    return data / "artifacts" / str(study_id) / run


def listing(folder: Path) -> list[dict[str, Any]]:
    """The files of a run: path, bytes, how to open each."""
    found = sorted(path for path in folder.iterdir() if path.is_file())
    return [{"path": str(path), "bytes": path.stat().st_size, "open_with": reading(path.name)} for path in found]
