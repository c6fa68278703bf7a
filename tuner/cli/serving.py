"""``tuner worker`` and ``tuner watch``: processes that go on until they are told to end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from tuner.cli import words
from tuner.cli.outcome import DONE, FAILED, INTERRUPTED, TERMINATED
from tuner.stop import Stop

if TYPE_CHECKING:
    from storage.records import RunRecord

BACKOFF_SECONDS = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Before a worker that has ended by itself is started again; from the start once it has lived long enough."""
LIVED_SECONDS = 300.0
UNUSABLE_SECONDS = 5.0
"""A worker that ends with "unusable arguments" so soon ends its supervisor too: starting it again cannot help."""


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """What ``tuner worker`` was given, as its own children get it."""

    slots: int = 1
    allowed: str | None = None
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"

    def words(self, number: int) -> list[str]:
        """The options of the child with that number: each has its own port."""
        made = ["--slots", str(self.slots), "--metrics-host", self.metrics_host]
        made += ["--allowed", self.allowed] if self.allowed else []
        port = self.metrics_port
        return [*made, "--metrics-port", str(port + number if port else port)] if port is not None else made


def serve(device: str, options: WorkerOptions) -> int:
    """Works on one device until a signal asks to end. The exit status is 0 after a drain."""
    from tuner import service
    from tuner.work import logs

    logs.set_up()
    with draining() as stop:
        service.work(
            device,
            stop,
            slots=options.slots,
            allowed=None if options.allowed is None else Path(options.allowed),
            metrics_port=options.metrics_port,
            metrics_host=options.metrics_host,
        )
    return DONE


@contextmanager
def draining() -> Iterator[Stop]:
    """Turns SIGTERM, SIGINT and SIGHUP into requests to end: the first drains, the second ends at once."""
    stop = Stop()

    def asked(_number: int, _frame: FrameType | None) -> None:
        stop.set(TERMINATED)

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, asked) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def serve_all(options: WorkerOptions) -> int:
    """Keeps one worker process a visible GPU (one for the CPU without any) alive until a signal asks to end."""
    from tuner.work import logs
    from tuner.work.seat import visible

    logs.set_up()
    names = [device.uuid for device in visible()] or ["cpu"] * options.slots
    children = [Kept(name, options.words(number)) for number, name in enumerate(names)]
    with draining() as stop:
        told = 0
        while not stop.is_set() and all(child.keep() for child in children):
            stop.wait(0.2)
        while any(child.is_alive() for child in children):
            while told < max(stop.times, 1):
                told += 1
                for child in children:
                    child.tell()
            time.sleep(0.1)
    return DONE if stop.is_set() else max(child.status for child in children)


class Kept:
    """One worker process that is started again when it has ended by itself."""

    def __init__(self, device: str, options: Sequence[str]) -> None:
        self._command = [sys.executable, "-m", "tuner", "worker", "--device", device, "--supervised", *options]
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = self._not_before = 0.0
        self._failures = 0
        self.status = DONE

    def keep(self) -> bool:
        """Starts it when it does not run; False when starting it again cannot help."""
        now = time.monotonic()
        if self._process is None:
            if now >= self._not_before:
                self._process, self._started_at = subprocess.Popen(self._command), now
            return True
        status = self._process.poll()
        if status is None:
            return True
        return self._ended(status, now)

    def _ended(self, status: int, now: float) -> bool:
        lived = now - self._started_at
        self._process, self.status = None, status if status >= 0 else FAILED
        self._failures = 0 if lived > LIVED_SECONDS else self._failures + 1
        self._not_before = now + BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)]
        return not (status == 2 and lived < UNUSABLE_SECONDS)

    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def tell(self) -> None:
        """Passes a request to end on."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)


def end_with_parent() -> None:
    """Drains when the supervisor dies, however it does."""
    from objectives.trial.process_table import process_control

    parent = os.getppid()
    process_control(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def watch_study(name: str, *, as_json: bool) -> int:
    """Prints what happens to a study, a line a fact, until it ends. The exit status is that of its end."""
    from tuner import service
    from tuner.cli.running import stop_on_signals

    status = ""
    live = LiveLine() if not as_json and sys.stdout.isatty() else None
    with stop_on_signals() as stop:
        for change in service.watch(name, stop, running=live is not None):
            if change.study is not None:
                status = change.study.status
            line = json.dumps(_fields(change)) if as_json else _line(change)
            if live is not None:
                live.take(change, line)
            elif line:
                print(line, flush=True)
    if live is not None:
        live.clear()
    if stop.is_set():
        return INTERRUPTED if stop.status == INTERRUPTED else TERMINATED
    return DONE if status == "finished" else FAILED


class LiveLine:
    """The last line of a terminal: how far the runs in progress have come. Facts are printed above it."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._unit: str | None = None

    def take(self, change: Any, line: str) -> None:
        """Prints a fact's line, or draws the last line anew where that is what the change tells."""
        if change.trial is not None:
            self._numbers[change.trial.id] = change.trial.number
            self._unit = change.trial.throughput_unit or self._unit
        if line:
            self.clear()
            print(line, flush=True)
        if change.running is not None:
            self.clear()
            print("; ".join(map(self._told, change.running))[: shutil.get_terminal_size().columns - 1], end="")
            sys.stdout.flush()

    def clear(self) -> None:
        """Leaves the last line empty."""
        print("\r\x1b[K", end="", flush=True)

    def _told(self, run: RunRecord) -> str:
        number = self._numbers.get(run.trial_id) if run.trial_id is not None else None
        peak = (run.progress or {}).get("memory_bytes")
        full = f", {words.size(peak)}" if peak is not None else ""
        return f"{run.purpose if number is None else f'trial {number}'}: {words.doing(run.progress, self._unit)}{full}"


def _fields(change: Any) -> Mapping[str, Any]:
    if change.study is not None:
        study = change.study
        return {"event": "study", "study": study.name, "status": study.status, "stop_reason": study.stop_reason}
    if change.run is not None:
        run, trial = change.run, change.trial
        return {
            "event": "run", "run": run.id, "purpose": run.purpose, "attempt": run.attempt,
            "trial": None if trial is None else trial.number, "outcome": run.outcome, "cause": run.cause,
            "throughput": run.throughput, "peak_memory_bytes": run.peak_memory_bytes, "seconds": run.seconds,
            "worker": run.worker_id,
        }  # fmt: skip
    trial = change.trial
    return {
        "event": "trial", "trial": trial.number, "outcome": trial.outcome, "cause": trial.cause,
        "config": dict(trial.config), "throughput": trial.throughput, "peak_memory_bytes": trial.peak_memory_bytes,
    }  # fmt: skip


def _line(change: Any) -> str:
    """The fact for a person; empty where another line says it."""
    if change.study is not None:
        reason = f", {change.study.stop_reason}" if change.study.stop_reason else ""
        return f"{change.study.name}: {change.study.status}{reason}"
    if change.run is None:
        return ""  # a trial, or how far the open runs are
    run, number = change.run, "-" if change.trial is None else str(change.trial.number)
    head = f"trial {number:>2}  {run.purpose}"
    if run.outcome is None:
        tries = f", attempt {run.attempt}" if run.attempt > 1 and run.purpose == "search" else ""
        return f"{head} runs on worker {str(run.worker_id or '-')[:8]}{tries}"
    what = run.outcome + (f" ({run.cause})" if run.cause else "")
    parts = [what, words.rate(run.throughput), words.size(run.peak_memory_bytes), words.duration(run.seconds)]
    return f"{head}  " + "  ".join(part for part in parts if part != words.NOTHING)
