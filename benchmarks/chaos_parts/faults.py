"""What is done to the stage, in an order that a seed decides: kills, cuts, a stopped worker, a server that is away."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sqlalchemy import text

from benchmarks.bench import say
from benchmarks.chaos_parts.stage import STUDY, Stage
from objectives.trial import process_table
from storage import trials
from storage.errors import StorageError

WEIGHTS = {"child": 6, "loader": 5, "cut": 4, "template": 3, "worker": 3}
"""How often what is hit, relative to each other."""
PAUSE_SECONDS = (1.0, 4.0)
"""Between two of them."""
OUTAGES_AT = (0.2, 0.5, 0.75)
"""Shares of the trials after which the server is stopped."""
STOPPED_AT = (0.35,)
"""Shares after which a worker is stopped for longer than its lease."""
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'tuner worker%'"
ENDED = ("finished", "failed", "cancelled")
TELL_SECONDS = 20.0
CALM_TRIALS = 3
"""Ended trials before anything happens: a study in which nothing has ever worked ends early, and rightly."""


@dataclass(kw_only=True)
class Record:
    """What was done.

    Attributes:
        counts: By kind.
        outages: When the server was stopped and when it answered again, ``time.time()``.
        hits: When who was hit with what, ``time.time()``: a worker's end explains what its child could not deliver.
    """

    counts: Counter[str] = field(default_factory=Counter)
    outages: list[tuple[float, float]] = field(default_factory=list)
    hits: list[tuple[float, str, int]] = field(default_factory=list)


class Chaos:
    """Does it until the study has ended. In the main thread: the server dies with the thread that has started it.

    Args:
        stage: To what.
        trials: How many trials the study will have.
        seed: Same seed, same order of kinds and pauses; whom it hits depends on who is there.
        outages_at: As :data:`OUTAGES_AT`.
        stopped_at: As :data:`STOPPED_AT`.
        pause_seconds: As :data:`PAUSE_SECONDS`.
    """

    def __init__(
        self,
        stage: Stage,
        *,
        trials: int,
        seed: int,
        outages_at: Sequence[float] = OUTAGES_AT,
        stopped_at: Sequence[float] = STOPPED_AT,
        pause_seconds: tuple[float, float] = PAUSE_SECONDS,
    ) -> None:
        self._stage, self._trials, self._pause = stage, trials, pause_seconds
        self._random = random.Random(seed)
        planned: list[tuple[float, Callable[[], None]]] = [(at, self._outage) for at in outages_at]
        planned += [(at, self._stopped_worker) for at in stopped_at]
        self._planned = sorted(planned, key=lambda each: each[0])
        self._hit = {
            "child": self._kill_child, "loader": self._kill_loader, "cut": self._cut,
            "template": self._kill_template, "worker": self._kill_worker,
        }  # fmt: skip
        self.record = Record()
        self.status = ""

    def run(self, give_up_at: float) -> str:
        """The study's status at the end; not one of :data:`ENDED` when it went on until ``give_up_at`` (monotonic)."""
        told_at = time.monotonic()
        while not self._rest(self._random.uniform(*self._pause), give_up_at):
            self._once()
            if time.monotonic() - told_at > TELL_SECONDS:
                told_at = time.monotonic()
                say(f"{self.status}, {self._done()} trials ended, so far {dict(self.record.counts)}")
        return self.status

    def _rest(self, seconds: float, give_up_at: float) -> bool:
        """Waits; True once the study has ended, or took too long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(min(0.25, max(0.0, until - time.monotonic())))
            with suppress(StorageError):
                self.status = self._stage.service.study(STUDY).status
            if self.status in ENDED or time.monotonic() > give_up_at:
                return True
        return False

    def _once(self) -> None:
        done = self._done()
        if done < CALM_TRIALS:
            return
        if self._planned and done >= self._planned[0][0] * self._trials:
            self._planned.pop(0)[1]()
            return
        kinds, weights = zip(*WEIGHTS.items(), strict=True)
        kind = self._random.choices(kinds, weights)[0]
        if self._hit[kind]():
            self.record.counts[kind] += 1

    def _done(self) -> int:
        try:
            study = self._stage.service.study(STUDY)
            return sum(trials.counts(self._stage.service.database, study.id).values())
        except StorageError:
            return 0

    def _kill(self, what: str, found: Sequence[int]) -> bool:
        if not found:
            return False
        pid = self._random.choice(sorted(found))
        process = process_table.read(pid)
        if process is None or not process.alive:
            return False
        self.record.hits.append((time.time(), what, pid))
        process_table.end([process])
        return True

    def _kill_worker(self) -> bool:
        return self._kill("worker", [process.pid for process in self._stage.living()])

    def _kill_template(self) -> bool:
        return self._kill("template", [pid for pid, depth in self._below().items() if depth == 1])

    def _kill_child(self) -> bool:
        return self._kill("child", [pid for pid, depth in self._below().items() if depth == 2])

    def _kill_loader(self) -> bool:
        return self._kill("loader", [pid for pid, depth in self._below().items() if depth > 2])

    def _below(self) -> dict[int, int]:
        """How far below its worker each process is: a template 1, a child 2, a loader's worker 3."""
        table = {process.pid: process for process in self._stage.processes()}
        workers = {process.pid for process in self._stage.living()}
        found: dict[int, int] = {}
        for pid in table:
            depth, at = 0, pid
            while at in table and at not in workers:
                depth, at = depth + 1, table[at].parent
            if at in workers and depth:
                found[pid] = depth
        return found

    def _cut(self) -> bool:
        """Cuts every connection of the workers, or half of them."""
        some = self._random.choice(("", "AND mod(pid, 2) = 0"))
        try:
            database = self._stage.service.database
            return bool(database.read(lambda session: session.execute(text(f"{CUT} {some}")).all()))
        except StorageError:
            return False

    def _outage(self) -> None:
        """Stops the server for up to two leases; killing goes on meanwhile."""
        begun = time.time()
        self._stage.server.stop()
        until = time.monotonic() + self._random.uniform(1.0, 2.0) * self._stage.service.lease_seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, self._random.uniform(*self._pause)))
            kind = self._random.choice(("worker", "child", "template", "loader"))
            if self._hit[kind]():
                self.record.counts[kind] += 1
        self._stage.server.start()
        self.record.outages.append((begun, time.time()))
        self.record.counts["outage"] += 1

    def _stopped_worker(self) -> None:
        """Stops one worker past its lease: its child ends itself, others take its run; then lets it go on."""
        living = self._stage.living()
        if not living:
            return
        worker = self._random.choice(living)
        self.record.hits.append((time.time(), "stop", worker.pid))
        worker.send_signal(signal.SIGSTOP)
        time.sleep(self._stage.service.lease_seconds * 2.0)
        worker.send_signal(signal.SIGCONT)
        self.record.counts["stop"] += 1
