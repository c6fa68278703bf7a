"""People who look at a live study, without a browser each: the same messages, nothing drawn.

A crowd of browsers on the machine that is measured would measure the browsers. Started as a process of its own::

    python -m benchmarks.ui_parts.visitor ADDRESS STUDY PEOPLE

It says ``ready`` when everybody has seen the page, and at the end of its input what each saw: when which number of
ended trials stood there first.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

PROGRESS = re.compile(r"([\d,]+) of [\d,]+ trials")
MOST_MESSAGE_BYTES = 2**28
PATIENCE_SECONDS = 120.0


class Visitor(threading.Thread):
    """One session: it asks for the page, then for its parts as often as the page says.

    Attributes:
        seen: Wall time and number, each time another number of ended trials was sent.
        messages: Received in all; ``received_bytes`` likewise.
    """

    def __init__(self, address: str, study: str) -> None:
        super().__init__(daemon=True)
        self._address, self._query = address, f"study={quote(study)}"
        self.seen: list[tuple[float, int]] = []
        self.messages = self.received_bytes = 0
        self.ready, self.stop = threading.Event(), threading.Event()
        self._page = ""
        self._due: dict[str, tuple[float, float]] = {}

    def run(self) -> None:
        """Until it is stopped."""
        place = self._address.replace("http", "ws", 1) + "/_stcore/stream"
        with connect(
            place, origin=self._address, subprotocols=["streamlit"], max_size=MOST_MESSAGE_BYTES  # type: ignore[arg-type, list-item]
        ) as line:  # fmt: skip
            self._ask(line, None)
            while not self.stop.is_set():
                self._ask_for_parts(line)
                with suppress(TimeoutError):
                    self._take(line.recv(timeout=0.1))

    def _ask(self, line: Any, part: str | None) -> None:
        message = BackMsg()
        asked = message.rerun_script
        asked.query_string, asked.page_script_hash = self._query, self._page
        asked.page_name = "" if self._page else "study"
        if part is not None:
            asked.fragment_id, asked.is_auto_rerun = part, True
        line.send(message.SerializeToString())

    def _ask_for_parts(self, line: Any) -> None:
        now = time.monotonic()
        for part, (every, due) in list(self._due.items()):
            if now >= due:
                self._due[part] = (every, now + every)
                self._ask(line, part)

    def _take(self, sent: Any) -> None:
        message = ForwardMsg()
        message.ParseFromString(sent)
        self.messages, self.received_bytes = self.messages + 1, self.received_bytes + len(sent)
        kind = message.WhichOneof("type")
        if kind == "navigation":
            self._page = message.navigation.page_script_hash
        elif kind == "auto_rerun":
            every = message.auto_rerun.interval
            self._due[message.auto_rerun.fragment_id] = (every, time.monotonic() + every)
        elif kind == "stop_auto_rerun":
            self._due.pop(message.stop_auto_rerun.fragment_id, None)
        elif kind == "delta":
            self._look(message.delta)

    def _look(self, delta: Any) -> None:
        found = PROGRESS.search(delta.new_element.progress.text)
        if found is None:
            return
        count = int(found.group(1).replace(",", ""))
        if not self.seen or self.seen[-1][1] != count:
            self.seen.append((time.time(), count))
        self.ready.set()


def main(address: str, study: str, people: int) -> None:
    """Opens the sessions, waits for the end of the input, prints what they saw."""
    crowd = [Visitor(address, study) for _ in range(people)]
    for each in crowd:
        each.start()
    for each in crowd:
        if not each.ready.wait(PATIENCE_SECONDS):
            raise RuntimeError(f"{address} did not show the study's progress")
    print("ready", flush=True)
    sys.stdin.read()
    for each in crowd:
        each.stop.set()
    with suppress(WebSocketException):
        for each in crowd:
            each.join(10)
    print(json.dumps({
        "seen": [each.seen for each in crowd], "messages": sum(each.messages for each in crowd),
        "bytes": sum(each.received_bytes for each in crowd),
    }))  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
