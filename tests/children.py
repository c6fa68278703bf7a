"""Real children for tests: requests to the misbehaving workload, and patience."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from objectives.contract import ObjectiveReference
from objectives.trial import process_table
from objectives.trial.protocol import Event, RunRequest
from tuner.work.launcher import Launcher
from tuner.work.trial_process import ProcessEnd, TrialProcess

WORKLOADS = Path(__file__).parent / "workloads"
PATIENCE_SECONDS = 90.0
"""The machine may be busy: a condition that fails is waited for so long, one that holds ends the wait at once."""


PRELOAD = ("torch", "torch._dynamo", "objectives.trial.training_loop")
"""What makes a child quick; ``torch._dynamo`` is imported by the first optimizer of a process."""


def make_request(do: str, *, kind: str = "tests_misbehaving:Misbehaving", **settings: Any) -> RunRequest:
    environment = settings.pop("environment", {})
    lease = settings.pop("keepalive_seconds", 60.0)
    reference = ObjectiveReference(kind=kind, settings={"do": do, **settings}, folder=str(WORKLOADS))
    return RunRequest(
        run=str(uuid.uuid4()),
        purpose="search",
        objective=reference,
        environment=environment,
        keepalive_seconds=lease,
    )


def finish(process: TrialProcess) -> tuple[ProcessEnd, list[Event]]:
    """Polls to the end."""
    events, give_up_at = [], time.monotonic() + PATIENCE_SECONDS
    while process.ended is None:
        assert time.monotonic() < give_up_at, events
        events += process.poll(0.5)
    return process.ended, events


def run(launcher: Launcher, folder: Path, do: str, **settings: Any) -> tuple[ProcessEnd, list[Event]]:
    return finish(launcher.start(make_request(do, **settings), folder / "log"))


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not (value := condition()):
        assert time.monotonic() < give_up_at, f"waited in vain until {what}"
        time.sleep(0.02)
    return value


def lives(pid: int) -> bool:
    process = process_table.read(pid)
    return process is not None and process.alive


def poll_until(process: TrialProcess, condition: Callable[[], Any], what: str) -> Any:
    def polled() -> Any:
        process.poll(0.05)
        assert process.ended is None, process.ended
        return condition()

    return wait_for(polled, what)


def pids_in(file: Path) -> list[int]:
    return [int(word) for word in file.read_text().split()] if file.exists() else []


def failure(events: list[Event]) -> Event:
    (found,) = [event for event in events if event.event == "failure"]
    return found


def chain(events: list[Event]) -> list[dict[str, Any]]:
    return list(failure(events).fields["chain"])
