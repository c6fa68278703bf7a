"""The way to whoever started the run: JSON lines out, one word back (``stop_at``). Opened by the first thing to say."""

from __future__ import annotations

import json
import os
import socket
from typing import Any


class Line:
    """One process's line. A process that has nothing to report never connects."""

    def __init__(self) -> None:
        self._address = ""
        self._socket: socket.socket | None = None
        self._rest = b""
        self.stop_at: int | None = None
        """Leave after this optimizer step; None: go on."""

    @property
    def told(self) -> bool:
        """Whether there is anybody to report to."""
        return bool(self._address)

    @property
    def open(self) -> bool:
        """Whether this process has reported anything."""
        return self._socket is not None

    def tell(self, address: str) -> None:
        """Where to report: a name in Linux' abstract namespace."""
        self._address = address

    def forget(self) -> None:
        """In a forked child: the line was the parent's."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest, self.stop_at = None, b"", None

    def send(self, **message: Any) -> None:
        """Sends one message; ends this process when nobody is there any more (the run is over)."""
        head = {"pid": os.getpid(), **place()}
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._socket.connect("\0" + self._address)
            self._socket.sendall(json.dumps({**head, **message}).encode() + b"\n")
        except OSError:
            os._exit(1)

    def listen(self) -> None:
        """Takes in what has come; never waits."""
        if self._socket is None:
            return
        try:
            received = self._socket.recv(4096, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            os._exit(1)
        *lines, self._rest = (self._rest + received).split(b"\n")
        for text in lines:
            self.stop_at = int(json.loads(text)["stop_at"])


def place() -> dict[str, int]:
    """This process's rank and the number of ranks, by torch's own word or the launcher's; 0 of 1 without any."""
    import sys

    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
    return {"rank": int(os.environ.get("RANK", "0")), "world_size": int(os.environ.get("WORLD_SIZE", "1"))}


LINE = Line()
