"""A child's whole life: read the request, run its body, say how it ended, leave.

Started warm (forked by the template) or cold (``python -P -m objectives.trial.child CHANNEL [HELD ...]``); from
:func:`live` on both are the same. A child never outlives its worker: see :mod:`objectives.trial.channel`.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from objectives.contract import SCRIPT
from objectives.trial import process_table
from objectives.trial.channel import Channel, read_request_line
from objectives.trial.failure import failure_fields
from objectives.trial.protocol import RunRequest

Body = Callable[[RunRequest, Channel], None]

BODIES: Mapping[str, str] = {
    "search": "objectives.trial.training_loop:run",
    "repeat": "objectives.trial.training_loop:run",
    "confirm": "objectives.trial.training_loop:run",
    "capability": "objectives.trial.capability:run",
    "estimate": "objectives.trial.estimating:run",
    "loader_capacity": "objectives.trial.loader_capacity:run",
    "verify": "objectives.trial.equivalence:run",
    "trainer": "objectives.trainers.job:run",
    "soak": "objectives.trial.soaking:run",
    "profile": "objectives.trial.profiling:run",
}
"""What runs for which purpose."""
BODIES_OF_KIND: Mapping[str, Mapping[str, str]] = {
    SCRIPT: {
        **dict.fromkeys(("search", "repeat", "confirm"), "objectives.script.run:run"),
        "capability": "objectives.script.look:run",
        "estimate": "objectives.script.look:refuse",
    }
}
"""Kinds of objectives that are no workload of ours, and what runs for them instead."""

TEARDOWN_SECONDS = 5.0
"""How long leaving may take (exit handlers, threads, destructors) after the last event."""
KERNEL_CHOICE = 500
"""Added to this process's score for when the kernel must kill something: a run before its template or worker."""
RESERVE_BYTES = 4 * 1024 * 1024
"""Held while the body runs and given back on a failure, so that it can be told when memory has run out."""


def live(connection: socket.socket, *, forked: bool, bodies: Mapping[str, str] = BODIES) -> NoReturn:
    """Lives one run from its request to its exit status: 0 finished, 1 failed, or what the body's ``sys.exit`` says."""
    faulthandler.enable(file=sys.stderr, all_threads=True)
    request = RunRequest.from_json(read_request_line(connection).decode())
    channel = Channel(connection, rank=request.rank, world_size=request.world_size)
    channel.listen(request.keepalive_seconds)
    channel.send("started", run=request.run, purpose=request.purpose, pid=os.getpid())
    leave(tell(request, channel, bodies), forked=forked)


def settle(request: RunRequest) -> None:
    """Makes this process the run's: its mark, environment, folder, and the kernel's first choice to kill."""
    os.environ.update(request.environment)
    os.environ[process_table.RUN_VARIABLE] = request.run
    if request.objective.folder not in sys.path:
        sys.path.append(request.objective.folder)  # at the end: a user's module never hides ours or an installed one
    os.chdir(request.objective.folder)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(KERNEL_CHOICE), encoding="ascii")


def tell(request: RunRequest, channel: Channel, bodies: Mapping[str, str]) -> int:
    """Runs the body and sends its ``finished`` or ``failure``. Returns the exit status.

    The first error is told before anything is cleaned up, so no later one can take its place.
    """
    reserve = [bytearray(RESERVE_BYTES)]
    try:
        settle(request)
        of_kind = BODIES_OF_KIND.get(request.objective.kind, {}) if bodies is BODIES else {}
        body_for(request.purpose, {**bodies, **of_kind})(request, channel)
        channel.send("finished", stop_reason=channel.stop_reason)
    except BaseException as error:  # noqa: BLE001 - every ending is named, whatever it is
        reserve.clear()
        lift_memory_cap()
        if isinstance(error, SystemExit) and error.code in (None, 0):
            return 0  # left without a result; the missing `finished` says so
        channel.send("failure", phase=channel.last_phase, **failure_fields(error), **facts(channel))
        return error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
    return 0


def body_for(purpose: str, bodies: Mapping[str, str]) -> Body:
    """The function that runs such a request.

    Raises:
        LookupError: There is none.
    """
    if purpose not in bodies:
        raise LookupError(f"a child cannot run purpose {purpose!r}; it can run {', '.join(bodies)}")
    module, _, name = bodies[purpose].partition(":")
    body: Body = getattr(importlib.import_module(module), name)
    return body


def facts(channel: Channel) -> dict[str, Any]:
    """What the body knows about its failure beside the exception; empty when even that fails."""
    try:
        known = dict(channel.failure_facts())
    except Exception as error:  # noqa: BLE001 - the failure itself must be told
        return {"facts_error": f"{type(error).__name__}: {error}"[:500]}
    return {name: value for name, value in known.items() if name not in ("phase", "chain", "traceback")}


def lift_memory_cap() -> None:
    """Raises a soft limit on the data segment: telling the failure needs memory, too."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def leave(status: int, *, forked: bool) -> NoReturn:
    """Exits with the status; threads are joined and exit handlers run, for :data:`TEARDOWN_SECONDS` at most.

    A thread ends a hang in Python with the right status; behind it the kernel's alarm ends one in native code, where no
    Python thread can run any more (the run's result has been sent by then).

    Args:
        status: The exit status.
        forked: Then the interpreter is not taken apart afterwards, as :mod:`multiprocessing` does it: that would touch,
            and so copy, every page shared with the template (0.1 s on an idle machine, 1 s on a busy one).
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, TEARDOWN_SECONDS + 3.0)
    watchdog = threading.Timer(TEARDOWN_SECONDS, _give_up, args=(status,))
    watchdog.daemon = True
    with suppress(RuntimeError):  # no thread to be had: the alarm is left
        watchdog.start()
    if not forked:
        sys.exit(status)
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _give_up(status: int) -> None:
    os.write(2, f"tightfit: leaving took more than {TEARDOWN_SECONDS:g} s; these threads were left:\n".encode())
    faulthandler.dump_traceback(file=2, all_threads=True)
    os._exit(status)


def main(arguments: list[str]) -> NoReturn:
    """A cold start: the channel's descriptor is the first argument; the others are only held (a device's lock)."""
    process_table.process_control(process_table.PR_SET_PDEATHSIG, signal.SIGKILL)
    for argument in arguments:
        os.set_inheritable(int(argument), False)
    live(socket.socket(fileno=int(arguments[0])), forked=False)


if __name__ == "__main__":
    main(sys.argv[1:])
