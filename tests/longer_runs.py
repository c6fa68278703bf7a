"""Bodies of longer runs in this process, on the planted workloads, without a child: what they send is collected."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from objectives.contract import ObjectiveReference
from objectives.trial.protocol import RunRequest

PLANTED = Path(__file__).parent / "workloads" / "planted"


class Collected:
    """Stands where the channel to the worker is."""

    stop_requested = False
    stop_reason = None
    last_phase = "import"

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.failure_facts: Callable[[], Mapping[str, Any]] = dict

    def send(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    def phase(self, name: str) -> None:
        self.last_phase = name

    def last(self, name: str) -> dict[str, Any]:
        return next(fields for event, fields in reversed(self.events) if event == name)


@contextmanager
def planted_on_path() -> Iterator[None]:
    sys.path.append(str(PLANTED))
    try:
        yield
    finally:
        sys.path.remove(str(PLANTED))


def run_body(
    body: Callable[[Any, Any], None],
    kind: str,
    config: Mapping[str, Any],
    answer: Mapping[str, Any],
    *,
    purpose: Any = "verify",
    name: str = "answer",
    settings: Mapping[str, Any] | None = None,
    **values: Any,
) -> dict[str, Any]:
    """The fields of the last event of that name."""
    reference = ObjectiveReference(kind=kind, settings=dict(settings or {}), folder=str(PLANTED))
    size = config.get("micro_batch_size", 1) * config.get("accumulation_steps", 1)
    request = RunRequest(
        run="here", purpose=purpose, objective=reference, config=config, global_batch_size=size, answer=answer,
        cap_memory=False, **values,
    )  # fmt: skip
    channel = Collected()
    with planted_on_path():
        body(request, channel)
    return channel.last(name)
