"""How a worker is: ``/healthz`` for whoever restarts it, ``/metrics`` in Prometheus' text format.

https://prometheus.io/docs/instrumenting/exposition_formats/ ; a dozen figures need no library.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

PREFIX = "tightfit_worker"


@dataclass(kw_only=True)
class Figures:
    """What a worker counts. Written by its own threads, read by the server's.

    Attributes:
        lease_seconds: After so long without an answer of the store it is not healthy.
        runs: Ended runs by outcome.
        studies: Studies it has worked on.
        run_seconds: Wall time of its runs.
        study: Name of the one it works on; None while it is idle.
        heard_at: When the store answered last, ``time.monotonic()``.
        waiting: How many results wait in the outbox.
        quarantined: Whether its device is out of service.
        draining: Whether it was asked to end.
    """

    lease_seconds: float
    labels: Mapping[str, str] = field(default_factory=dict)
    runs: Counter[str] = field(default_factory=Counter)
    studies: int = 0
    run_seconds: float = 0.0
    study: str | None = None
    heard_at: Callable[[], float] = time.monotonic
    waiting: Callable[[], int] = lambda: 0
    quarantined: Callable[[], bool] = lambda: False
    draining: Callable[[], bool] = lambda: False

    def health(self) -> tuple[int, dict[str, Any]]:
        """HTTP status and document of ``/healthz``: 503 when the store has not answered for a lease."""
        silent = time.monotonic() - self.heard_at()
        fine = silent < self.lease_seconds
        document = {
            "healthy": fine,
            "reason": None if fine else f"the store has not answered for {silent:.0f} s",
            "store_silent_seconds": round(silent, 3),
            "study": self.study,
            "quarantined": self.quarantined(),
            "draining": self.draining(),
            **self.labels,
        }
        return (200 if fine else 503), document

    def metrics(self) -> str:
        """The document of ``/metrics``."""
        silent = time.monotonic() - self.heard_at()
        lines = _family("info", "gauge", "Which worker this is.", [(self.labels, 1)])
        by_outcome = [({"outcome": outcome}, count) for outcome, count in sorted(self.runs.items())]
        lines += _family("runs_total", "counter", "Ended runs by outcome.", by_outcome)
        figures = (
            ("run_seconds_total", "counter", "Wall time of ended runs.", self.run_seconds),
            ("studies_total", "counter", "Studies it has worked on.", self.studies),
            ("busy", "gauge", "1 while it works on a study.", int(self.study is not None)),
            ("store_silent_seconds", "gauge", "Since the store answered last.", silent),
            ("outbox_results", "gauge", "Results that wait for the store.", self.waiting()),
            ("quarantined", "gauge", "1 while its device is out of service.", int(self.quarantined())),
            ("draining", "gauge", "1 once it was asked to end.", int(self.draining())),
        )
        for name, kind, text, value in figures:
            lines += _family(name, kind, text, [({}, value)])
        return "\n".join(lines) + "\n"


def _family(name: str, kind: str, text: str, samples: Sequence[tuple[Mapping[str, str], float]]) -> list[str]:
    full = f"{PREFIX}_{name}"
    return [
        f"# HELP {full} {text}",
        f"# TYPE {full} {kind}",
        *(f"{full}{_labels(of)} {value:g}" for of, value in samples),
    ]


def _labels(values: Mapping[str, str]) -> str:
    escaped = (
        (name, str(value).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\""))
        for name, value in values.items()
    )
    inside = ",".join(f'{name}="{value}"' for name, value in escaped)
    return f"{{{inside}}}" if inside else ""


class HealthServer:
    """Answers while the block runs.

    Args:
        figures: What it tells.
        port: 0 for any free one.
        host: Loopback unless the operator says otherwise: nothing here asks who reads.
    """

    def __init__(self, figures: Figures, port: int, host: str = "127.0.0.1") -> None:
        self._server = ThreadingHTTPServer((host, port), _handler(figures))
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def __enter__(self) -> HealthServer:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(figures: Figures) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/healthz":
                status, document = figures.health()
                self._answer(status, "application/json", json.dumps(document))
            elif self.path == "/metrics":
                self._answer(200, "text/plain; version=0.0.4; charset=utf-8", figures.metrics())
            else:
                self._answer(404, "text/plain", "there are /healthz and /metrics\n")

        def _answer(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Says nothing: who asks for the health is no fact about the work."""

    return Handler
