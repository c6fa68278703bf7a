"""The warm process that forks: ``python -P -m objectives.trial.template CONTROL``. One thread, no device, no backward.

It imports what every run of a study needs, once, then forks a child per run in milliseconds. Before each fork it looks
whether a fork is safe; if not, the child is started cold and the reply says why. It is the children's parent: it alone
learns their true exit status, and it ends whatever a child leaves behind. When its worker goes, so does all of it.

Messages on CONTROL (SOCK_SEQPACKET, JSON; descriptors travel beside them):

* from the worker: ``{"preload": [module], "path": folder}`` once, then for each run
  ``{"start": run, "cold": bool, "prefix": [word]}`` with the descriptors channel, log and any that the
  child shall merely hold;
* to the worker: ``{"ready": problems by module}``, ``{"started": run, "pid", "warm", "reason"}`` with a pidfd,
  ``{"refused": run, "reason"}``, ``{"exited": run, "status", "max_rss_bytes", "orphans_killed", "orphans_left"}``.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from objectives.trial import process_table
from objectives.trial.child import live

LARGEST_MESSAGE_BYTES = 128 * 1024
MOST_DESCRIPTORS = 16
DEVICE_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/accel", "/dev/davinci", "/dev/habanalabs", "/dev/neuron")
"""An open one means that the driver holds state a fork breaks."""
HANDLED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, kw_only=True)
class Forked:
    """What a forked child gets: its end of the channel (and descriptors that it merely holds)."""

    channel: int
    held: tuple[int, ...]


def unsafe_to_fork() -> str | None:
    """Why a child forked now could hang or misbehave; None when it is safe."""
    threads = process_table.own_threads()
    if threads != 1:
        return f"the template has {threads} threads, and a fork takes only one along"
    devices = sorted({path for path in process_table.own_files().values() if path.startswith(DEVICE_FILES)})
    if devices:
        return f"the template has a device open ({', '.join(devices)})"
    poisoned = _poisoned_devices()
    return f"a forked child could not use {poisoned}: the template has touched it" if poisoned else None


def _device_modules() -> list[tuple[str, Any]]:
    """The kinds of device this torch was built for, as far as they know about forks."""
    torch = sys.modules.get("torch")
    modules = [(f"torch.{name}", getattr(torch, name, None)) for name in ("cuda", "xpu", "mtia")]
    return [(name, module) for name, module in modules if hasattr(module, "_is_in_bad_fork") and _is_built(module)]


def _is_built(module: Any) -> bool:
    return not hasattr(module, "_is_compiled") or bool(module._is_compiled())


def _poisoned_devices() -> str | None:
    """Asks a probe child: only behind a fork does torch know (FACTS: even ``is_available`` poisons it)."""
    modules = _device_modules()
    if not modules:
        return None
    pid = os.fork()
    if pid == 0:
        bad = [place for place, (_, module) in enumerate(modules) if module._is_in_bad_fork()]
        os._exit(bad[0] + 1 if bad else 0)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if 0 < code <= len(modules):
        return modules[code - 1][0]
    return f"anything (a probe child ended with {code})" if code else None


def preload(modules: Sequence[str], path: str = "") -> dict[str, str]:
    """Imports modules. Returns a problem by module: why it cannot be imported, or that it started threads.

    Args:
        modules: Names, in order.
        path: The folder a user's own modules are in, searched last; empty for none.
    """
    if path and path not in sys.path:
        sys.path.append(path)
    problems: dict[str, str] = {}
    for module in modules:
        before = process_table.own_threads()
        try:
            importlib.import_module(module)
        except BaseException as error:  # noqa: BLE001 - the child that needs it will fail with the whole story
            problems[module] = f"cannot be imported: {type(error).__name__}: {error}"[:1000]
        if (after := process_table.own_threads()) > before:
            problems[module] = f"starts {after - before} thread(s) when imported"
    gc.collect()
    gc.freeze()  # what lives now is not written to by later collections, so children keep sharing its pages
    return problems


class Template:
    """The loop: start when asked, report every exit, end everything when the worker is gone."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._pid = os.getpid()
        self._wake, self._woken = socket.socketpair()
        self._runs: dict[int, str] = {}
        self._problems: dict[str, str] = {}
        self._ending = False
        for end in (self._wake, self._woken):
            end.setblocking(False)
        process_table.process_control(process_table.PR_SET_CHILD_SUBREAPER, 1)
        for number in HANDLED:
            signal.signal(number, self._on_signal)
        signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)

    def _on_signal(self, number: int, _frame: object) -> None:
        self._ending = self._ending or number == signal.SIGTERM

    def serve(self) -> Forked | None:
        """Serves until the worker is gone: None. Returns in each forked child as well, with what the child needs."""
        while not self._ending:
            ready, _, _ = select.select([self._control, self._wake], [], [])
            if self._wake in ready:
                self._wake.recv(4096)
                self._reap()
            if self._control in ready:
                data, descriptors = self._receive()
                if not data:
                    break
                forked = self._obey(json.loads(data), descriptors)
                if forked is not None:
                    return forked
        self._end_everything()
        return None

    def _receive(self) -> tuple[bytes, list[int]]:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, LARGEST_MESSAGE_BYTES, MOST_DESCRIPTORS)
        except ConnectionError:
            return b"", []
        return data, descriptors

    def _send(self, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
        data = json.dumps(message).encode()
        with suppress(BrokenPipeError, ConnectionResetError):  # the worker is gone: the loop sees it next
            socket.send_fds(self._control, [data], list(descriptors))

    def _obey(self, message: Mapping[str, Any], descriptors: list[int]) -> Forked | None:
        if "preload" in message:
            self._problems = preload(message["preload"], message.get("path", ""))
            self._send({"ready": self._problems})
            return None
        prefix = list(message.get("prefix", ()))
        reason = _asked_cold(message, prefix) or self._unsafe()
        try:
            pid = self._spawn(message["start"], prefix, descriptors) if reason else os.fork()
        except OSError as error:
            self._send({"refused": message["start"], "reason": f"cannot start a process: {error}"})
        else:
            if pid == 0:
                return self._become_child(message["start"], descriptors)
            self._started(message["start"], pid, reason)
        _close(descriptors)
        return None

    def _unsafe(self) -> str | None:
        reason = unsafe_to_fork()
        named = [f"{module} {problem}" for module, problem in self._problems.items()]
        return "; ".join([reason, *named]) if reason else None

    def _started(self, run: str, pid: int, reason: str | None) -> None:
        self._runs[pid] = run
        pidfd = process_table.open_pidfd(pid)
        handles = [] if pidfd is None else [pidfd]
        self._send({"started": run, "pid": pid, "warm": reason is None, "reason": reason}, handles)
        _close(handles)

    def _spawn(self, run: str, prefix: Sequence[str], descriptors: Sequence[int]) -> int:
        """Starts a cold child in a session of its own. Never forks Python code, so threads do no harm here."""
        channel, log, *held = descriptors
        kept = [str(descriptor) for descriptor in (channel, *held)]
        command = [*prefix, sys.executable, "-P", "-m", "objectives.trial.child", *kept]
        for descriptor in (channel, *held):
            os.set_inheritable(descriptor, True)
        return os.posix_spawnp(
            command[0],
            command,
            os.environ | {process_table.RUN_VARIABLE: run},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[*HANDLED, signal.SIGPIPE],
        )

    def _become_child(self, run: str, descriptors: Sequence[int]) -> Forked:
        """Turns the forked process into the run's own: session, signals, output; the template's files are closed."""
        channel, log, *held = descriptors
        os.setsid()
        process_table.process_control(process_table.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._pid:
            os._exit(1)  # the template died in between
        process_table.mark(run)
        signal.set_wakeup_fd(-1)
        for number in HANDLED:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for end in (self._control, self._wake, self._woken):
            end.close()
        _close_inherited({channel, log, *held})
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        return Forked(channel=channel, held=tuple(held))

    def _reap(self) -> None:
        """Reports every run's child that has exited and takes the status of everything else that has."""
        while (pid := _exited_child()) is not None:
            if pid in self._runs:
                self._finish(pid)
            else:
                os.waitpid(pid, 0)

    def _finish(self, pid: int) -> None:
        """Ends what the dead child left (its number stays taken until it is waited for), then reports its exit."""
        run = self._runs[pid]
        killed, left = process_table.end_all(lambda: self._left_behind(run, pid))
        _, status, usage = os.wait4(pid, 0)
        del self._runs[pid]
        self._send(
            {
                "exited": run,
                "status": status,
                "max_rss_bytes": usage.ru_maxrss * 1024,
                "orphans_killed": killed,
                "orphans_left": left,
            }
        )

    def _left_behind(self, run: str, pid: int) -> list[process_table.Process]:
        """Besides the run's own marks: what was adopted, unless it may be another running run's."""
        return process_table.left_behind(run, pid, also=lambda process: self._is_adopted(process, run))

    def _is_adopted(self, process: process_table.Process, run: str) -> bool:
        if process.parent != self._pid or process.pid in self._runs:
            return False
        others = set(self._runs.values()) - {run}
        return not others or process_table.run_of(process.pid) not in others | {None}

    def _end_everything(self) -> None:
        for pid in list(self._runs):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            self._finish(pid)


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _exited_child() -> int | None:
    """A child that has exited and was not waited for yet; its status stays to be taken."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return found.si_pid if found is not None else None


def _asked_cold(message: Mapping[str, Any], prefix: Sequence[str]) -> str | None:
    if prefix:
        return f"asked for: under {prefix[0]}"
    return "asked for" if message.get("cold") else None


def _close_inherited(kept: set[int]) -> None:
    """Puts /dev/null in place of every other open descriptor.

    Its number stays taken: a Python object that still owns it may close it later, and must not close another's.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in process_table.own_files():
        if descriptor not in kept | {1, 2, nothing}:
            with suppress(OSError):
                os.fstat(descriptor)
                os.dup2(nothing, descriptor, inheritable=descriptor == 0)
    os.close(nothing)


def main(arguments: Sequence[str]) -> None:
    """Serves the worker on the given descriptor; in a forked child, lives the child's life instead."""
    control = socket.socket(fileno=int(arguments[0]))
    control.set_inheritable(False)
    forked = Template(control).serve()
    if forked is not None:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
        live(socket.socket(fileno=forked.channel), forked=True)


if __name__ == "__main__":
    main(sys.argv[1:])
