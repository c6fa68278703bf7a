"""How a process says in the store that it works: its device, its host, its share of the cores."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from storage import workers

if TYPE_CHECKING:
    from storage.database import Database
    from storage.records import WorkerRecord
    from tuner.work.lane import Device


def host_name() -> str:
    """This machine's name, as workers are listed by."""
    return socket.gethostname()


def register(
    database: Database,
    device: Device,
    *,
    lease_seconds: float,
    study_id: int | None = None,
    facts: Mapping[str, Any] | None = None,
) -> WorkerRecord:
    """Stores this process as a worker.

    Args:
        database: The store.
        device: What it owns (the first, where ``tuner run`` uses several).
        lease_seconds: After so long without a word it counts as lost.
        study_id: The study it works on without the queue; None for a service worker, which claims studies.
        facts: What else its row says.
    """
    made = workers.register(
        database,
        id=str(uuid.uuid4()),
        host=host_name(),
        pid=os.getpid(),
        device_kind=device.kind,
        device_name=device.name,
        device_uuid=device.uuid,
        total_memory_bytes=device.total_memory_bytes,
        threads=device.threads,
        facts={"door": "service" if study_id is None else "run", **(facts or {})},
        lease_seconds=lease_seconds,
    )
    return made if study_id is None else workers.attach(database, made.id, study_id)
