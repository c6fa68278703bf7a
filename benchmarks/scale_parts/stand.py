"""The server a scale benchmark stands on, and the processes it starts there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
if str(ROOT / "tests") not in sys.path:
    sys.path.append(str(ROOT / "tests"))

from postgres import Server, private_server  # noqa: E402 - the tests' own folder, added above

from storage.database import Database  # noqa: E402
from tuner.search.projection import Projection  # noqa: E402

CONNECTIONS = "400"


@contextmanager
def server() -> Iterator[Server]:
    """A PostgreSQL of the benchmark's own, as the tests start one."""
    with private_server(max_connections=CONNECTIONS) as made:
        yield made


@contextmanager
def empty(made: Server) -> Iterator[Database]:
    """A fresh store on it."""
    name = made.create()
    database = Database.open(made.url(name), application_name="tuner-scale")
    database.migrate()
    try:
        yield database
    finally:
        database.close()
        made.drop(name)


def url_of(database: Database) -> str:
    """With its password: for processes of the benchmark alone."""
    return database.url.render_as_string(hide_password=False)


def optuna_url(database: Database) -> str:
    """What plain Optuna opens in the same database."""
    return Projection(database).url()


def together(module: str, asked: Sequence[Mapping[str, Any]], *, seconds: float = 600.0) -> list[dict[str, Any]]:
    """Starts processes at once and waits for their answers.

    Raises:
        RuntimeError: One of them failed; with its last words.
    """
    started = [_started(module, each) for each in asked]
    answers = []
    for process in started:
        said, words = process.communicate(timeout=seconds)
        if process.returncode != 0:
            for each in started:
                each.kill()
            raise RuntimeError(f"{module} ended with {process.returncode}: {words[-2000:]}")
        answers.append(json.loads(said.splitlines()[-1]))
    return answers


def _started(module: str, asked: Mapping[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", module, json.dumps(asked)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
