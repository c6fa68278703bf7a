"""Runs as the worker sees them: one child process each, started by a launcher, listened to, and ended for certain.

:class:`Launcher` is the worker's end of a template process; :class:`TrialProcess` is one run of it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from objectives.trial import process_table
from tuner.work import processes
from tuner.work.run_line import Line
from tuner.work.run_memory import Peaks

if TYPE_CHECKING:
    from objectives.trial.protocol import Event, RunRequest
    from tuner.work.launcher import Launcher
    from tuner.work.run_log import RunLog

REPORT_SECONDS = 20.0
"""A template reports a dead child within milliseconds, or within its own limit for ending what is left."""


@dataclass(frozen=True, kw_only=True)
class ProcessEnd:
    """How a run's process ended. What is not known is None.

    Attributes:
        exit_code: Its exit status, when it exited by itself.
        signal: The signal that ended it.
        killed_by_us: Whether that was our SIGKILL, or it exited after we had asked it to stop.
        kill_reason: The first reason we stopped or killed it for; None when we did neither.
        launcher_lost: Its template died first: the true status is not known.
        orphans_killed: Processes it left behind, all killed (``orphans_left``: those stuck in the kernel).
        log_head: Start of its output; empty when ``log_tail`` holds everything.
        log_tail: End of its output.
        warm: Whether it was forked from the warm template; else ``cold_reason`` says why not.
        start_seconds: From the request to the child's ``started`` event.
        peak_data_bytes: Largest data segment seen (what a CPU's memory cap limits), at polling times only.
        peak_anonymous_bytes: Largest resident anonymous memory seen, likewise.
        tree_pss_bytes: Largest memory of the whole process tree seen, likewise and more seldom.
        max_rss_bytes: Largest resident memory of the run by the kernel's account.
        kernel_kills_rose: Whether the kernel killed something for memory during the run, on this machine or in this
            control group.
        broken_lines: Lines on the channel that were no events.
        broken_line: The start of the first of them.
    """

    exit_code: int | None = None
    signal: int | None = None
    killed_by_us: bool = False
    kill_reason: str | None = None
    launcher_lost: bool = False
    orphans_killed: int = 0
    orphans_left: int = 0
    log_head: str = ""
    log_tail: str = ""
    warm: bool = True
    cold_reason: str | None = None
    start_seconds: float | None = None
    peak_data_bytes: int | None = None
    peak_anonymous_bytes: int | None = None
    tree_pss_bytes: int | None = None
    max_rss_bytes: int | None = None
    kernel_kills_rose: bool | None = None
    broken_lines: int = 0
    broken_line: str = ""


@dataclass(frozen=True, kw_only=True)
class Started:
    """What the template answered. ``pidfd`` is None where the kernel has none; ``reason`` is why it was not warm."""

    pid: int
    pidfd: int | None
    warm: bool
    reason: str | None


class TrialProcess:
    """One run's process. Poll it until :attr:`ended`; each poll also tells the child that its worker lives.

    Used from one thread.
    """

    def __init__(
        self,
        request: RunRequest,
        started: Started,
        *,
        connection: socket.socket,
        log: RunLog,
        launcher: Launcher,
        asked_at: float,
        kills_before: Mapping[str, int],
    ) -> None:
        self.run = request.run
        self.pid = started.pid
        self.ended: ProcessEnd | None = None
        self._started, self._asked_at, self._kills_before = started, asked_at, kills_before
        self._launcher, self._log = launcher, log
        self._line = Line(connection, request)
        self._memory = Peaks(started.pid)
        self._reason: str | None = None
        self._stop_asked = self._kill_sent = False
        self._dead_since: float | None = None
        self._start_seconds: float | None = None
        self._report: Mapping[str, Any] | None = None

    @property
    def warm(self) -> bool:
        """Whether it was forked from the warm template."""
        return self._started.warm

    @property
    def cold_reason(self) -> str | None:
        """Why not; None when it was."""
        return self._started.reason

    def poll(self, timeout: float) -> list[Event]:
        """The events that have come. Waits for the first one, or for the end, at most ``timeout`` seconds."""
        until = time.monotonic() + timeout
        while self.ended is None:
            self._line.keep_alive()
            self._memory.look()
            self._log.bound()
            events = self._read()
            left = until - time.monotonic()
            if self._report is not None or self._launcher_is_gone():
                while more := self._read():  # all a dead process has sent is there
                    events += more
                self._finish()
            if events or self.ended is not None or left <= 0:
                return events
            self._wait(min(left, self._line.due_in(), 1.0))
        return []

    def _read(self) -> list[Event]:
        events = self._line.read()
        if self._start_seconds is None:
            self._start_seconds = next(
                (e.monotonic_seconds - self._asked_at for e in events if e.event == "started"), None
            )
        return events

    def _wait(self, seconds: float) -> None:
        """Sleeps until the child or the template says something."""
        poller = select.poll()
        for source in (self._line.source(), self._launcher.source()):
            if source is not None:
                poller.register(source, select.POLLIN)
        poller.poll(max(0.0, seconds) * 1000)
        self._launcher.hear()

    def stop(self, reason: str) -> None:
        """Asks the run to finish its step, send what it has and end. The first reason given is the one remembered."""
        if self.ended is None:
            self._reason = self._reason or reason
            self._stop_asked = True
            self._line.send({"stop": reason})

    def kill(self, reason: str) -> None:
        """Kills the run; its template ends everything the run has started. Does nothing when it has ended already."""
        if self.ended is not None or self._kill_sent or self._is_dead():
            return
        process = process_table.read(self.pid)
        if process is not None and process.alive:  # else it is dying already, of something else
            self._reason = self._reason or reason
            self._kill_sent = True
        with contextlib.suppress(ProcessLookupError):
            process_table.send_signal(self.pid, self._started.pidfd, signal.SIGKILL)

    def report(self, message: Mapping[str, Any] | None) -> None:
        """The template's word on the exit; None when the template itself is gone. Called by the launcher."""
        if self._report is None and self.ended is None:
            self._report = message if message is not None else {}

    def _is_dead(self) -> bool:
        if self._started.pidfd is not None:
            return bool(select.select([self._started.pidfd], [], [], 0)[0])
        process = process_table.read(self.pid)
        return process is None or not process.alive

    def _launcher_is_gone(self) -> bool:
        """A template that does not report a dead child in time hangs, and is ended."""
        if self._dead_since is None and self._is_dead():
            self._dead_since = time.monotonic()
        if self._dead_since is None or time.monotonic() - self._dead_since < REPORT_SECONDS:
            return False
        self._launcher.abandon()
        return True

    def _finish(self) -> None:
        report = self._report or {}
        lost = "status" not in report
        killed = self._end_leftovers() if lost else int(report["orphans_killed"])
        code = None if lost else os.waitstatus_to_exitcode(int(report["status"]))
        number = -code if code is not None and code < 0 else None
        head, tail = self._log.head_and_tail()
        self.ended = ProcessEnd(
            exit_code=code if number is None else None,
            signal=number,
            killed_by_us=self._by_us(number, lost),
            kill_reason=self._reason,
            launcher_lost=lost,
            orphans_killed=killed,
            orphans_left=int(report.get("orphans_left", 0)),
            log_head=head,
            log_tail=tail,
            warm=self._started.warm,
            cold_reason=self._started.reason,
            start_seconds=self._start_seconds,
            peak_data_bytes=self._memory.data_bytes,
            peak_anonymous_bytes=self._memory.anonymous_bytes,
            tree_pss_bytes=self._memory.tree_pss_bytes,
            max_rss_bytes=report.get("max_rss_bytes"),
            kernel_kills_rose=processes.kills_rose(self._kills_before, processes.kernel_kills()),
            broken_lines=self._line.broken,
            broken_line=self._line.first_broken,
        )
        self._close()

    def _end_leftovers(self) -> int:
        """What the template would have ended: all that carries the run's mark, and all we have seen below its child."""
        process_table.end(self._memory.seen)
        return processes.end_run(self.run, self.pid)

    def _by_us(self, number: int | None, lost: bool) -> bool:
        if lost:
            return self._kill_sent
        return (self._kill_sent and number == signal.SIGKILL) or (self._stop_asked and number is None)

    def _close(self) -> None:
        self._line.close()
        self._log.close()
        self._launcher.forget(self)
        if self._started.pidfd is not None:
            os.close(self._started.pidfd)
