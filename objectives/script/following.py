"""One script from its start to its end: what its processes say goes into the ledger, and decides when it is over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from objectives.measure.proc import status_bytes
from objectives.script.ledger import Ledger, Merged
from objectives.script.listening import Listening, Word
from objectives.trial import process_table

POLL_SECONDS = 0.1
LEAVE_SECONDS = 10.0
"""A script asked to leave runs its own cleaning up for so long."""
OTHERS_SECONDS = 0.5
"""After a rank's failure the others' own words are waited for; then all of them are stopped."""
LAUNCHER_SECONDS = 5.0
"""A rank that vanished without a word: its launcher knows how it died, and says so on its way out."""
LOOK_SECONDS = 0.5
AHEAD_SECONDS = 0.5
"""Ranks leave after the same step: so far ahead that all of them hear of it in time."""
START = Path(__file__).with_name("start.py")


class Following:
    """A started command and its processes.

    Args:
        command: Program and arguments.
        environment: All of it.
        run: The run's id, which marks its processes.
        listening: What they report to.
        ledger: What they have said.
        on_steps: Called with steps that are complete.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        run: str,
        listening: Listening,
        ledger: Ledger,
        on_steps: Callable[[list[Merged]], None],
    ) -> None:
        self._run, self._listening, self._ledger, self._on_steps = run, listening, ledger, on_steps
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(START), str(os.getpid()), *command],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
        )
        self._look_at = 0.0
        self._failed_at: float | None = None
        self._asked_at: float | None = None
        self.failures: dict[int, tuple[float, Mapping[str, object]]] = {}
        """By process: when it failed and what it said, ranks and the command itself only."""
        self.peak_anonymous_bytes: int | None = None

    @property
    def status(self) -> int | None:
        """The command's exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    def follow(self, stop_requested: Callable[[], bool], refused: Callable[[], bool]) -> None:
        """Returns when the command has ended, was told to and did, or must be ended (:meth:`end` does it).

        Args:
            stop_requested: Whether the worker asks to end with what there is.
            refused: Whether what was read back is not what was asked.
        """
        while True:
            ended = self.status is not None
            self._hear(0.0 if ended else POLL_SECONDS)
            if ended:
                while self._hear(0.0):
                    continue
                return
            if stop_requested():
                self._ledger.finish()
            if refused() or self._is_over(time.monotonic()):
                return
            self._look()

    def _hear(self, seconds: float) -> bool:
        words = self._listening.words(seconds)
        for word in words:
            self._take(word)
        return bool(words)

    def _take(self, word: Word) -> None:
        now = time.monotonic()
        if word.gone:
            rank = self._ledger.ranks.get(word.pid)
            if rank is not None and not rank.left:
                rank.gone = True
                self._failed_at = self._failed_at or now
            return
        pid = int(word.message.get("pid", word.pid))
        steps = self._ledger.hear(pid, word.message, now)
        if steps:
            self._on_steps(steps)
        if "failure" in word.message and (pid == self._process.pid or self._is_rank(pid)):
            self.failures.setdefault(pid, (now, word.message["failure"]))
            self._failed_at = self._failed_at or now

    def _is_rank(self, pid: int) -> bool:
        rank = self._ledger.ranks.get(pid)
        return rank is not None and (bool(rank.steps) or self._ledger.world > 1)

    def _is_over(self, now: float) -> bool:
        if self._ledger.complete:
            return self._has_left(now)
        if self._failed_at is None:
            return False
        patience = OTHERS_SECONDS if self.failures else LAUNCHER_SECONDS
        return now - self._failed_at > patience

    def _has_left(self, now: float) -> bool:
        """Asks the ranks to leave, once; whether all have, and the command too, or have had long enough."""
        if self._asked_at is None:
            self._asked_at = now
            self._listening.stop_at(self._last_step())
        return now - self._asked_at > LEAVE_SECONDS

    def _last_step(self) -> int:
        if self._ledger.world == 1 or not self._ledger.window:
            return 0
        seconds = max(self._ledger.window[-1].seconds, 1e-4)
        return self._ledger.last_step + 1 + int(AHEAD_SECONDS / seconds)

    def _look(self) -> None:
        """The largest anonymous memory of the run's processes, while the cap is on: a silent death is judged by it."""
        now = time.monotonic()
        if self._ledger.all_applied or now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        for pid in process_table.tree(self._process.pid, process_table.table()):
            seen = status_bytes(pid).get("RssAnon")
            if seen is not None:
                self.peak_anonymous_bytes = max(self.peak_anonymous_bytes or 0, seen)

    def end(self) -> int:
        """Kills what is left of the command and of all it has started. Returns the command's exit status."""
        if self.status is None:
            process_table.end(process_table.left_behind(self._run, os.getpid()), signal.SIGKILL)
        status = self._process.wait()
        process_table.end_all(lambda: process_table.left_behind(self._run, os.getpid()))
        return status
