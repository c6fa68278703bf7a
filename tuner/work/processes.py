"""What a worker reads about processes: the kernel's kills, a run's memory, and the environment a run may see."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from objectives.script.environment import OWN_VARIABLE
from objectives.trial import process_table

PROCESS_START_DEFAULTS: Mapping[str, str] = {
    # One thread until the child sets its own number: a pool of OpenMP threads does not survive a fork (libgomp).
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # Spinning threads beside a busy neighbour made steps 2 to 8 times slower.
    "OMP_WAIT_POLICY": "passive",
    # Tokenizers' own threads neither survive a fork nor help a loader worker.
    "TOKENIZERS_PARALLELISM": "false",
    # Asks NVML, not the driver, whether there is a GPU: asking the driver would poison the fork.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}
"""What every template starts with; a study's own process-start environment goes over it."""

_OURS = re.compile(r"TUNER_|TIGHTFIT_")
_DATABASE = re.compile(r"PG[A-Z]+$|(.*_)?(DATABASE|DB|POSTGRES|POSTGRESQL|MYSQL)_(URL|URI|DSN|PASSWORD)(_FILE)?$", re.I)
_DATABASE_URL = re.compile(r"\s*(postgres(ql)?|mysql|mariadb|mssql|oracle)(\+\w+)?:/", re.IGNORECASE)


def template_environment(worker: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """The environment a template and so every run starts with.

    Args:
        worker: The worker's own. Of it, nothing that names or opens a database goes on, and none of our settings.
        extra: A study's process-start variables, as given.
    """
    kept = {name: value for name, value in worker.items() if not _is_private(name, value)}
    mark = {process_table.RUN_VARIABLE: process_table.placeholder()}
    own = {name: worker.get(name) for name in PROCESS_START_DEFAULTS if name not in extra}
    marks = {**mark, OWN_VARIABLE: json.dumps(own)}
    return kept | _import_path(kept) | dict(PROCESS_START_DEFAULTS) | dict(extra) | marks


def _is_private(name: str, value: str) -> bool:
    return any(pattern.match(name) for pattern in (_OURS, _DATABASE)) or _DATABASE_URL.match(value) is not None


def _import_path(environment: Mapping[str, str]) -> dict[str, str]:
    """Where a template finds our packages: nothing to say when they are installed, ``PYTHONPATH`` in a bare checkout.

    A package folder is never put there: it would come before the standard library.
    """
    root = Path(process_table.__file__).parents[2]
    entries = {entry or str(Path.cwd()) for entry in sys.path}
    if str(root) not in entries or root.name in ("site-packages", "dist-packages"):
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(root), environment.get("PYTHONPATH", "")]))}


def kernel_kills(cgroup_root: Path = Path("/sys/fs/cgroup"), proc: Path = Path("/proc")) -> dict[str, int]:
    """How often the kernel has killed for memory: by counter (the machine's, this control group's, v1 or v2).

    Empty when no counter can be read; compare two readings with :func:`kills_rose`.
    """
    files = {"machine": proc / "vmstat"}
    for line in read_text(proc / "self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            files["group"] = cgroup_root / group.lstrip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            files["group_v1"] = cgroup_root / "memory" / group.lstrip("/") / "memory.oom_control"
    counts = {name: number_behind(read_text(file), "oom_kill") for name, file in files.items()}
    return {name: count for name, count in counts.items() if count is not None}


def kills_rose(before: Mapping[str, int], after: Mapping[str, int]) -> bool | None:
    """Whether any counter rose between two readings; None when none could be compared."""
    both = before.keys() & after.keys()
    return any(after[name] > before[name] for name in both) if both else None


def end_run(run: str, leader: int) -> int:
    """Kills whatever of a run still lives, its leader included; for runs whose template is gone. Returns how many."""

    def remaining() -> list[process_table.Process]:
        first = process_table.read(leader)
        marked = first is not None and first.alive and process_table.run_of(leader) == run
        return [*([first] if first and marked else []), *process_table.left_behind(run, leader)]

    killed, _ = process_table.end_all(remaining)
    return killed


def read_text(file: Path) -> str:
    """A file of /proc or the control groups; empty when it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def number_behind(text: str, name: str) -> int | None:
    """The number behind a name at the start of a line."""
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None
