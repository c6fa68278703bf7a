"""The stage of a chaos run: one PostgreSQL that can be stopped, workers that are kept alive, a study of sleeping runs.

It is made of what the integration tests are made of (``tests/service.py``), so that both speak of the same service.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[2] / "tests"
if str(TESTS) not in sys.path:
    sys.path.append(str(TESTS))

from service import Restartable, Service, restartable_server  # noqa: E402 - the tests' own folder, added above

from objectives.trial import process_table  # noqa: E402

STUDY = "chaos"
TOKEN = "CHAOS_STAGE"
"""An environment variable that every process of the stage inherits: what is found with it at the end is an orphan."""
RESTART_SECONDS = 1.0
"""How soon a worker that has ended is started again, as systemd would."""
SEARCH: Mapping[str, Any] = {
    "micro_batch_size": [1, 2, 4, 8, 16],
    "loss": ["full", "chunked"],
    "optimizer": ["adamw", "adamw-foreach", "adamw-fused"],
    "loader_workers": [0, 1, 2],
    "prefetch_factor": [2, 4, 8],
}
"""210 configurations that only differ for the store; six in seven have loader workers."""


class Stage:
    """Everything that runs, and how it is kept running.

    Args:
        server: The PostgreSQL.
        folder: For data, logs and the journal.
        workers: How many workers there shall be.
        lease_seconds: Of each.
    """

    def __init__(self, server: Restartable, folder: Path, *, workers: int, lease_seconds: float) -> None:
        self.server, self.wanted = server, workers
        url = server.server.url("postgres")
        self.service = Service(url, folder, lease_seconds=lease_seconds, slots=workers)
        self.journal_path = folder / "journal.jsonl"
        self.token = uuid.uuid4().hex
        self.service.environment |= {TOKEN: self.token}
        (folder / "tests_journal.py").write_bytes((TESTS / "workloads" / "tests_journal.py").read_bytes())
        allowed = {"objectives": ["tests_journal"], "code": [str(folder)]}
        (folder / "allowed.yaml").write_text(json.dumps(allowed), encoding="utf-8")
        self.restarts = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="supervisor", daemon=True)

    def begin(self, trials: int) -> None:
        """Hands the study in and starts the workers."""
        self.service.submit(
            STUDY,
            objective={
                "kind": "tests_journal:Journaled",
                "settings": {"seconds": 0.005, "journal": str(self.journal_path)},
            },
            global_batch_size=16,
            search=dict(SEARCH),
            sampler="grid",
            limits={"trials": trials, "window": "0.3s", "trial_time": "120s"},
        )
        self._thread.start()

    def living(self) -> list[subprocess.Popen[bytes]]:
        """The workers' processes that have not ended."""
        return [process for process in list(self.service.workers) if process.poll() is None]

    def _keep(self) -> None:
        """Starts a worker for each that is missing, and again for each that has ended."""
        while not self._ended.is_set():
            for _ in range(self.wanted - len(self.living())):
                self.restarts += len(self.service.workers) >= self.wanted
                self.service.start_worker()
            self._ended.wait(RESTART_SECONDS)

    def drain(self, seconds: float = 60.0) -> int:
        """Asks every worker to end; returns how many did not in time."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        for process in self.living():
            process.terminate()
        give_up_at = time.monotonic() + seconds
        while self.living() and time.monotonic() < give_up_at:
            time.sleep(0.1)
        return len(self.living())

    def processes(self) -> list[process_table.Process]:
        """Every living process that the stage's workers have started, they included."""
        mark = f"{TOKEN}={self.token}".encode()
        return [each for each in process_table.table().values() if each.alive and mark in _environment(each.pid)]

    def journal(self) -> list[dict[str, Any]]:
        """What the children wrote."""
        if not self.journal_path.exists():
            return []
        return [json.loads(line) for line in self.journal_path.read_text(encoding="utf-8").splitlines()]


def _environment(pid: int) -> tuple[bytes, ...]:
    try:
        return tuple(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return ()


@contextmanager
def staged(folder: Path, *, workers: int, lease_seconds: float) -> Iterator[Stage]:
    """A stage that leaves nothing behind, whatever happens on it."""
    with restartable_server() as server:
        made = Stage(server, folder, workers=workers, lease_seconds=lease_seconds)
        try:
            yield made
        finally:
            made.drain(0.0)
            made.service.close()
            process_table.end(made.processes())
