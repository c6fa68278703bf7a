"""The worker's end of a child's channel. It never blocks, whatever the child does with its own end."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from objectives.trial import protocol

if TYPE_CHECKING:
    from objectives.trial.protocol import Event, RunRequest

LARGEST_LINE_BYTES = 8 * 1024 * 1024
"""A longer line from a child is no event; it is dropped and counted."""
RECEIPTS = 64
"""Taken in at most at one reading (a socket holds some hundred kilobytes), so that keepalives go out in between."""
LEASE_SHARE = 0.2
"""A keepalive is due after this share of the child's lease."""


class Line:
    """Sends the request, keepalives and ``stop``; reads events.

    Attributes:
        broken: Lines that were no events.
        first_broken: The start of the first of them; empty without one.
    """

    def __init__(self, connection: socket.socket, request: RunRequest) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._every = request.keepalive_seconds * LEASE_SHARE
        self._due_at = time.monotonic() + self._every
        self._outgoing = bytearray(request.to_json().encode() + b"\n")
        self._incoming = bytearray()
        self._dropping = self._at_end = False
        self.broken, self.first_broken = 0, ""
        self._flush()

    def source(self) -> int | None:
        """What to wait on; None when the child has closed its end."""
        return None if self._at_end else self._connection.fileno()

    def due_in(self) -> float:
        """Seconds until the next keepalive (or the next attempt to send what a full line holds back)."""
        return 0.05 if self._outgoing else self._due_at - time.monotonic()

    def keep_alive(self) -> None:
        """Sends a keepalive when one is due."""
        if time.monotonic() >= self._due_at:
            self._due_at = time.monotonic() + self._every
            if not self._outgoing:
                self.send({"keepalive": 1})
        self._flush()

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends one line, now or as soon as there is room."""
        self._outgoing += json.dumps(message).encode() + b"\n"
        self._flush()

    def _flush(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self._connection.send(self._outgoing)]
        except BlockingIOError:
            return
        except OSError:  # the child is gone; its exit says the rest
            self._outgoing.clear()

    def read(self) -> list[Event]:
        """The events there are now; of a child that sends without end, those of a bounded number of bytes."""
        events: list[Event] = []
        for _ in range(RECEIPTS):
            if self._at_end or (received := self._receive()) is None:
                break
            self._at_end = not received
            *lines, rest = (bytes(self._incoming) + received).split(b"\n")
            self._incoming = bytearray(rest)
            events += [event for event in map(self._decode, lines) if event is not None]
            if len(self._incoming) > LARGEST_LINE_BYTES:
                if not self._dropping:
                    self._note_broken(bytes(self._incoming[:500]))
                self._incoming.clear()
                self._dropping = True
        return events

    def _receive(self) -> bytes | None:
        try:
            return self._connection.recv(1 << 20)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _decode(self, line: bytes) -> Event | None:
        if self._dropping:
            self._dropping = False  # the end of a line that was too long
            return None
        try:
            return protocol.decode(line)
        except (ValueError, KeyError, TypeError, RecursionError):
            self._note_broken(line)
            return None

    def _note_broken(self, line: bytes) -> None:
        self.broken += 1
        self.first_broken = self.first_broken or line[:500].decode("utf-8", "replace")

    def close(self) -> None:
        """Closes the line."""
        self._connection.close()
