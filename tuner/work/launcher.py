"""The worker's end of a template: starts it, asks it for children, and starts another when it has died."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from objectives.trial import process_table
from tuner.errors import MachineError
from tuner.work import processes
from tuner.work.run_log import RunLog, readable
from tuner.work.trial_process import Started, TrialProcess

if TYPE_CHECKING:
    from objectives.trial.protocol import RunRequest
    from tuner.work.device_lock import DeviceLock

START_SECONDS = 300.0
"""A template that has not started a child by then (imports included) is taken for hanging."""
LARGEST_MESSAGE_BYTES = 128 * 1024


class LaunchError(MachineError):
    """No child could be started: the template died or hung twice, or the system refuses new processes (``infra``)."""


class _TemplateLostError(Exception):
    """The template died (or hung) before it answered; its last words are the text."""


class Launcher:
    """Starts runs' processes from one warm template. The template starts with the first run, or with :meth:`warm_up`.

    Used from one thread. The worker is not made a subreaper: it may be a person's own Python process or notebook, where
    adopting and reaping strangers would be wrong. What a lost template leaves behind is found by its mark instead.

    Args:
        preload: Modules the template imports before the first child, in order.
        environment: Process-start variables; another set of them needs a launcher of its own.
        path: The folder of the user's own modules, for ``preload``; empty for none.
    """

    def __init__(
        self, *, preload: Sequence[str] = (), environment: Mapping[str, str] | None = None, path: str = ""
    ) -> None:
        self._preload, self._environment, self._path = tuple(preload), dict(environment or {}), path
        self._template: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._output: IO[bytes] | None = None
        self._words = ""
        self._running: dict[str, TrialProcess] = {}
        self._answers: dict[str, Started | str] = {}
        self.problems: Mapping[str, str] = {}
        """Modules the template could not preload, or that keep it from forking, with the reason."""

    @property
    def template_pid(self) -> int | None:
        """The template's process number; None while there is none."""
        return self._template.pid if self._template is not None else None

    def warm_up(self) -> None:
        """Starts the template without waiting for its imports."""
        if self._template is not None and self._template.poll() is not None:
            self._lose()
        if self._template is None:
            self._open()

    def start(
        self,
        request: RunRequest,
        log_path: Path,
        *,
        cold: bool = False,
        prefix: Sequence[str] = (),
        lock: DeviceLock | None = None,
    ) -> TrialProcess:
        """Starts one run. A template that has died since the last one is started again.

        Args:
            request: What the child is to do; its ``run`` is at most 64 characters long.
            log_path: File its output goes to; made if need be, appended to.
            cold: Start a new interpreter in any case.
            prefix: A command that shall start the interpreter (a profiler); implies ``cold``.
            lock: A held device lock; the child holds it as well from now on.

        Raises:
            LaunchError: It could not be started; nothing of it is left.
        """
        assert len(request.run.encode()) <= process_table.MARK_BYTES, request.run
        for attempt in (1, 2):
            try:
                self.warm_up()
                return self._start(request, log_path, {"cold": cold, "prefix": list(prefix)}, lock)
            except _TemplateLostError as lost:
                self.abandon()
                if attempt == 2:
                    raise LaunchError(f"no process could be started for the run: {lost}") from lost
        raise AssertionError("unreachable")

    def _start(
        self, request: RunRequest, log_path: Path, how: Mapping[str, Any], lock: DeviceLock | None
    ) -> TrialProcess:
        asked_at, kills = time.monotonic(), processes.kernel_kills()
        ours, theirs = socket.socketpair()
        log = RunLog(log_path)
        try:
            with theirs:
                held = [lock.fileno()] if lock is not None else []
                self._send({"start": request.run, **how}, [theirs.fileno(), log.fileno(), *held])
            answer = self._answer(request.run)
            if isinstance(answer, str):
                raise LaunchError(f"no process could be started for the run: {answer}")
        except BaseException:
            ours.close()
            log.close()
            raise
        process = TrialProcess(
            request, answer, connection=ours, log=log, launcher=self, asked_at=asked_at, kills_before=kills
        )
        self._running[request.run] = process
        return process

    def _open(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the template
        with theirs:
            self._template = subprocess.Popen(
                [sys.executable, "-P", "-m", "objectives.trial.template", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                env=processes.template_environment(os.environ, self._environment),
                start_new_session=True,  # Ctrl-C is the worker's to hear
            )
        self._control.setblocking(False)
        self._send({"preload": list(self._preload), "path": self._path})

    def _send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        assert self._control is not None
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], list(descriptors))
        except OSError as error:
            raise _TemplateLostError(f"the template is gone ({error}){self._last_words()}") from error

    def _answer(self, run: str) -> Started | str:
        give_up_at = time.monotonic() + START_SECONDS
        while run not in self._answers:
            source = self.source()
            if source is None:
                raise _TemplateLostError(f"the template died while it started{self._last_words()}")
            if time.monotonic() > give_up_at:
                raise _TemplateLostError(f"the template did not answer within {START_SECONDS:g} s{self._last_words()}")
            select.select([source], [], [], 1.0)
            self.hear()
        return self._answers.pop(run)

    def source(self) -> int | None:
        """What to wait on for the template's messages; None while there is no template."""
        return self._control.fileno() if self._control is not None else None

    def hear(self) -> None:
        """Takes in all the template has said; when it is gone, tells every run of it so."""
        while self._control is not None:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._control, LARGEST_MESSAGE_BYTES, 16)
            except BlockingIOError:
                return
            except OSError:
                data, descriptors = b"", []
            if not data:
                self._lose()
                return
            self._take(json.loads(data), descriptors)

    def _take(self, message: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        if "ready" in message:
            self.problems = message["ready"]
        elif "refused" in message:
            self._answers[message["refused"]] = str(message["reason"])
        elif "started" in message:
            pidfd = descriptors[0] if descriptors else None
            self._answers[message["started"]] = Started(
                pid=message["pid"], pidfd=pidfd, warm=message["warm"], reason=message["reason"]
            )
        elif message["exited"] in self._running:
            self._running[message["exited"]].report(message)

    def forget(self, process: TrialProcess) -> None:
        """A run has ended. Called by the run."""
        self._running.pop(process.run, None)

    def abandon(self) -> None:
        """Kills the template and whatever it runs."""
        if self._template is not None:
            self._template.kill()
        self._lose()

    def _lose(self) -> None:
        self._words = self._last_words()
        if self._control is not None:
            self._control.close()
        if self._template is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._template.wait(timeout=10)
        if self._output is not None:
            self._output.close()
        self._control = self._template = self._output = None
        for process in list(self._running.values()):
            process.report(None)

    def _last_words(self) -> str:
        if self._output is None:
            return self._words
        size = os.fstat(self._output.fileno()).st_size
        words = readable(os.pread(self._output.fileno(), 4000, max(0, size - 4000))).strip()
        return f"; its last words: {words}" if words else ""

    def close(self) -> None:
        """Ends the template, every run that still goes, and all they have started."""
        if self._control is not None:
            self._control.close()  # the template ends its children and itself
            self._control = None
        if self._template is not None:
            try:
                self._template.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._template.kill()
        self._lose()

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
