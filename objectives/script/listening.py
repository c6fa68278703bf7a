"""The leader's end of the scripts' lines: who connects is one of its own processes; what it says is JSON lines."""

from __future__ import annotations

import json
import os
import secrets
import select
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LARGEST_LINE_BYTES = 8 * 1024 * 1024


@dataclass(kw_only=True)
class _Connection:
    socket: socket.socket
    rest: bytes = b""
    pid: int = 0


@dataclass(frozen=True, kw_only=True)
class Word:
    """One message of one process, or (``gone``) the end of its line."""

    pid: int
    message: Mapping[str, Any] = field(default_factory=dict)
    gone: bool = False


class Listening:
    """Takes in what a run's processes say. The address is a name in Linux' abstract namespace: nothing lies on disk."""

    def __init__(self) -> None:
        self.address = f"tightfit-{os.getpid()}-{secrets.token_hex(8)}"
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind("\0" + self.address)
        self._door.listen(128)
        self._open: dict[int, _Connection] = {}

    def words(self, seconds: float) -> list[Word]:
        """What has been said; waits at most so long for the first word."""
        ready, _, _ = select.select([self._door.fileno(), *self._open], [], [], seconds)
        found: list[Word] = []
        for source in ready:
            if source == self._door.fileno():
                self._accept()
            else:
                found += self._read(self._open[source])
        return found

    def _accept(self) -> None:
        connection, _ = self._door.accept()
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, user, _group = struct.unpack("3i", credentials)
        if user != os.getuid():
            connection.close()
            return
        connection.setblocking(False)
        self._open[connection.fileno()] = _Connection(socket=connection, pid=pid)

    def _read(self, one: _Connection) -> list[Word]:
        try:
            received = one.socket.recv(1 << 20)
        except BlockingIOError:
            return []
        except OSError:
            received = b""
        if not received or len(one.rest) > LARGEST_LINE_BYTES:
            del self._open[one.socket.fileno()]
            one.socket.close()
            return [Word(pid=one.pid, gone=True)]
        *lines, one.rest = (one.rest + received).split(b"\n")
        return [Word(pid=one.pid, message=message) for message in map(_decoded, lines) if message is not None]

    def stop_at(self, step: int) -> None:
        """Tells every process to leave after that optimizer step (at once where it is past)."""
        for one in self._open.values():
            try:
                one.socket.send(json.dumps({"stop_at": step}).encode() + b"\n")
            except OSError:
                continue  # it is gone, or hears it no more: the end of its line says so

    def close(self) -> None:
        """Closes every line: a process that still talks ends itself."""
        for one in self._open.values():
            one.socket.close()
        self._open.clear()
        self._door.close()


def _decoded(line: bytes) -> Mapping[str, Any] | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
