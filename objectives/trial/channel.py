"""A child's line to its worker: events go up, ``stop`` and keepalives come down.

A child that cannot reach its worker, or hears nothing from it for its lease, ends itself and its process group.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from objectives.trial.protocol import EventName, EventSender, Phase

LARGEST_LINE_BYTES = 64 * 1024 * 1024
"""A line from the worker that is longer is no line of ours."""


def end_this_run(reason: str) -> None:
    """Ends this process and its group at once, without any cleaning up that could hang. Does not return."""
    try:
        os.write(2, f"tightfit: this run ends itself: {reason}\n".encode())
    finally:
        if os.getpgid(0) == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)


def read_request_line(connection: socket.socket) -> bytes:
    """The worker's first line: the request. Waits for it; later lines stay unread.

    Raises:
        EOFError: The worker closed the line, or sent something that is no request.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        waiting = connection.recv(65536, socket.MSG_PEEK)
        if not waiting or len(line) > LARGEST_LINE_BYTES:
            raise EOFError("the worker closed the line before it sent a request")
        line += connection.recv(waiting.find(b"\n") + 1 or len(waiting))
    return bytes(line)


class Channel:
    """What a run's body gets beside its request. ``send`` and ``phase`` may be called from any thread.

    Attributes:
        last_phase: The phase the run is in.
        stop_reason: Why the worker asked to stop; None while it has not.
        failure_facts: What a ``failure`` event says beside the exception (``memory_used_share``, ``cap_reached``, ...);
            a body that knows such facts sets it. Called once, after the exception; its own failure is ignored.
    """

    def __init__(
        self,
        connection: socket.socket,
        *,
        rank: int = 0,
        world_size: int = 1,
        lost: Callable[[str], None] = end_this_run,
    ) -> None:
        self._connection = connection
        self._sender = EventSender(self._write, rank=rank, world_size=world_size)
        self._lock = threading.Lock()
        self._lost = lost
        self._stop = threading.Event()
        self.last_phase: Phase = "import"
        self.stop_reason: str | None = None
        self.failure_facts: Callable[[], Mapping[str, Any]] = dict
        os.register_at_fork(after_in_child=self._connection.close)

    @property
    def stop_requested(self) -> bool:
        """Whether the worker asked this run to finish the step it is in, send what it has, and end."""
        return self._stop.is_set()

    def send(self, event: EventName, **fields: Any) -> None:
        """Sends one event. Waits while the worker does not read; ends the run when the worker is gone."""
        with self._lock:
            self._sender.send(event, **fields)

    def phase(self, name: Phase) -> None:
        """Enters a phase and says so."""
        self.last_phase = name
        self.send("phase", phase=name)

    def _write(self, line: bytes) -> None:
        try:
            self._connection.sendall(line)
        except OSError as error:
            self._lost(f"its worker cannot be reached ({error})")

    def listen(self, keepalive_seconds: float) -> None:
        """Starts the thread that hears ``stop`` and ends this run when the worker is gone, or silent for so long."""
        thread = threading.Thread(target=self._listen, args=(keepalive_seconds,), name="worker-line", daemon=True)
        thread.start()

    def _listen(self, keepalive_seconds: float) -> None:
        rest, expires_at = b"", time.monotonic() + keepalive_seconds
        while True:
            ready, _, _ = select.select([self._connection], [], [], max(0.0, expires_at - time.monotonic()))
            if not ready:
                return self._lost(f"its worker said nothing for {keepalive_seconds:g} s")
            try:
                received = self._connection.recv(65536)
            except OSError:
                received = b""
            if not received:
                return self._lost("its worker is gone")
            expires_at = time.monotonic() + keepalive_seconds
            *lines, rest = (rest + received).split(b"\n")
            for line in lines:
                self._hear(line)

    def _hear(self, line: bytes) -> None:
        try:
            said = json.loads(line)
        except ValueError:
            print(f"tightfit: the worker said something unreadable: {line[:200]!r}", file=sys.stderr)  # noqa: T201
            return
        if isinstance(said, dict) and "stop" in said:
            self.stop_reason = str(said["stop"])
            self._stop.set()
