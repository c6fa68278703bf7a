"""A service for tests: a PostgreSQL that can be stopped and started, and real worker processes on the CPU's slots."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import postgres

from objectives.trial import process_table
from storage import queue, runs, studies, trials, workers
from storage.database import Database
from storage.records import RunRecord, StudyRecord, TrialRecord

WORKLOADS = Path(__file__).parent / "workloads"
PATIENCE_SECONDS = 120.0


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """What the condition returns once it is true."""
    give_up_at = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < give_up_at, f"waited in vain until {what}"
        time.sleep(0.05)
    return value


class Restartable:
    """A PostgreSQL whose outages are a test's to make."""

    def __init__(self, binaries: Path, folder: Path, account: Any) -> None:
        self._binaries, self._folder, self._account = binaries, folder, account
        self._port = postgres._free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.server = postgres.Server(admin=postgres._local_url(self._port))

    def start(self) -> None:
        options = [word for name, value in postgres.SETTINGS.items() for word in ("-c", f"{name}={value}")]
        command = [str(self._binaries / "postgres"), "-D", str(self._folder / "data"), "-p", str(self._port), "-k", ""]
        self._process = subprocess.Popen(
            [*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
            preexec_fn=postgres._die_with_parent(), **postgres._as(self._account),
        )  # fmt: skip
        postgres._wait_until_ready(self._process, self._port, self._folder / "password")

    def stop(self) -> None:
        """As an operator stops it: connections are cut."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait(timeout=30)


@contextmanager
def restartable_server() -> Iterator[Restartable]:
    account = postgres._account()
    folder = Path(tempfile.mkdtemp(prefix="tuner-postgres-", dir=postgres._reachable_folder()))
    try:
        folder.chmod(0o755)
        (folder / "password").write_text(postgres.PASSWORD)
        binaries = postgres._enterable(postgres.find_binaries(), folder, account)
        postgres._make_cluster(binaries, folder, account)
        made = Restartable(binaries, folder, account)
        made.start()
        try:
            yield made
        finally:
            made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Service:
    """Workers on one store, and a person's hands on it.

    Args:
        url: Of an empty or ready database.
        folder: For data, caches, the objective and its spec.
        lease_seconds: Of every worker.
        slots: How many workers there may be.
    """

    def __init__(self, url: str, folder: Path, *, lease_seconds: float = 2.0, slots: int = 2) -> None:
        self.folder, self.slots, self.lease_seconds = folder, slots, lease_seconds
        self.database = Database.open(url, application_name="tuner-tests")
        self.database.prepare()
        self.workers: list[subprocess.Popen[bytes]] = []
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tests_sleepy.py").write_bytes((WORKLOADS / "tests_sleepy.py").read_bytes())
        (folder / "allowed.yaml").write_text(json.dumps({"objectives": ["tests_sleepy"], "code": [str(folder)]}))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TUNER_")}
        self.environment = kept | {
            "TUNER_DATABASE_URL": url,
            "TUNER_DATA_DIR": str(folder / "data"),
            "TUNER_CACHE_DIR": str(folder / "cache"),
            "TUNER_ALLOWED_FILE": str(folder / "allowed.yaml"),
            "TUNER_LEASE_SECONDS": str(lease_seconds),
            "TUNER_DRAIN_SECONDS": "20",
        }

    def spec(self, study: str, **changes: Any) -> dict[str, Any]:
        """A spec of the sleeping objective."""
        limits = {"trials": 8, "window": "1s", "trial_time": "60s", "memory": "90%"} | changes.pop("limits", {})
        return {
            "study": study,
            "objective": {"kind": "tests_sleepy:Sleepy", "settings": {"seconds": 0.02}},
            "global_batch_size": 8,
            "baseline": {"micro_batch_size": 1},
            "search": {"micro_batch_size": [1, 2, 4, 8], "loss": ["full", "chunked"]},
            "sampler": "random",
            "device": "cpu",
            "limits": limits,
        } | changes

    def submit(self, study: str, *options: str, **changes: Any) -> dict[str, Any]:
        """Hands it in by the command line."""
        path = self.folder / f"{study}.yaml"
        path.write_text(json.dumps(self.spec(study, **changes)), encoding="utf-8")
        found: dict[str, Any] = json.loads(self.tuner("submit", str(path), "--json", *options))
        return found

    def tuner(self, *arguments: str) -> str:
        """The output of a command that must succeed."""
        done = subprocess.run(
            [sys.executable, "-m", "tuner", *arguments], env=self.environment, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start_worker(self, *options: str) -> subprocess.Popen[bytes]:
        """One more worker; its log stands in the folder."""
        command = [sys.executable, "-m", "tuner", "worker", "--device", "cpu", "--slots", str(self.slots), *options]
        with (self.folder / f"worker-{len(self.workers)}.log").open("wb") as log:
            process = subprocess.Popen(command, env=self.environment, stderr=log, stdout=log)
        self.workers.append(process)
        return process

    def log(self, number: int) -> list[dict[str, Any]]:
        """A worker's facts."""
        lines = (self.folder / f"worker-{number}.log").read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def study(self, name: str) -> StudyRecord:
        found = studies.find(self.database, name)
        assert found is not None
        return found

    def trials(self, name: str) -> tuple[TrialRecord, ...]:
        return trials.list_of(self.database, self.study(name).id)

    def runs(self, name: str, **wanted: Any) -> list[RunRecord]:
        found = runs.list_of(self.database, study_id=self.study(name).id)
        return [run for run in found if all(getattr(run, field) == value for field, value in wanted.items())]

    def open_run(self, name: str, worker: subprocess.Popen[bytes] | None = None, purpose: str = "search") -> RunRecord:
        """A run in progress of a trial, on that worker."""

        def found() -> RunRecord | None:
            living = workers.list_all(self.database)
            ids = {each.id for each in living if worker is None or each.pid == worker.pid}
            open_ones = self.runs(name, outcome=None, purpose=purpose)
            return next((run for run in open_ones if run.worker_id in ids and self.children(run.id)), None)

        made: RunRecord = until(found, "a run is in progress")
        return made

    def children(self, run: str) -> list[int]:
        """Processes that carry the run's mark."""
        return [pid for pid in _pids() if process_table.run_of(pid) == run]

    def pause(self, name: str) -> None:
        queue.pause(self.database, name)

    def close(self) -> None:
        for process in self.workers:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        self.database.close()


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


@contextmanager
def service(url: str, folder: Path, **options: Any) -> Iterator[Service]:
    with ExitStack() as stack:
        made = Service(url, folder, **options)
        stack.callback(made.close)
        yield made
