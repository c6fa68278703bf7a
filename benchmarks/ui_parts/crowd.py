"""Ten people watch a live study: how soon they see a trial that has ended, and what they cost the one who writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

from benchmarks.ui_parts.store import LIVE
from objectives.config import TrainingConfig
from objectives.knobs import config_key
from storage import runs, studies, trials
from storage.database import Database

LAST_LOOK_SECONDS = 5.0
PAUSE_SECONDS = 0.5
"""A sleeping objective's run: nothing is computed, so that only the store and the screens are busy."""


@dataclass(kw_only=True)
class Writer:
    """Writes what a worker writes, and notes how long each write takes.

    Attributes:
        write_seconds: One figure a store call.
        ended: Wall time at which so many trials had ended, by that number.
    """

    database: Database
    write_seconds: list[float] = field(default_factory=list)
    ended: dict[int, float] = field(default_factory=dict)
    stop: Event = field(default_factory=Event)

    def run(self) -> None:
        """One trial after the other until it is stopped."""
        study = studies.find(self.database, LIVE)
        assert study is not None
        done = sum(trials.counts(self.database, study.id).values())
        number = 0
        while not self.stop.is_set():
            self._trial(study.id, f"{time.time_ns()}", number)
            number, done = number + 1, done + 1
            self.ended[done] = time.time()

    def _trial(self, study_id: int, name: str, number: int) -> None:
        config = TrainingConfig(micro_batch_size=1 << number % 5)
        made = self._timed(
            trials.reserve, self.database, study_id=study_id, config=config.to_mapping(),
            config_key=config_key(config), source="auto",
        )  # fmt: skip
        self._timed(
            runs.start, self.database, id=name, study_id=study_id, trial_id=made.id, purpose="search", attempt=1
        )
        self.stop.wait(PAUSE_SECONDS)
        measured = {"throughput": 900.0 + number, "peak_memory_bytes": 40_000_000 + 1000 * number}
        self._timed(
            runs.record_end, self.database, id=name, outcome="completed", trial_id=made.id,
            run={**measured, "measurement": measured, "seconds": PAUSE_SECONDS},
            trial={**measured, "throughput_unit": "tokens_per_second", "windows": 1, "seconds": PAUSE_SECONDS},
        )  # fmt: skip

    def _timed(self, write: Any, *arguments: Any, **named: Any) -> Any:
        begun = time.perf_counter()
        made = write(*arguments, **named)
        self.write_seconds.append(time.perf_counter() - begun)
        return made


def written_for(database: Database, seconds: float) -> Writer:
    """A writer that has worked for so long."""
    writer = Writer(database=database)
    thread = Thread(target=writer.run, name="writer")
    thread.start()
    time.sleep(seconds)
    writer.stop.set()
    thread.join()
    return writer


def watched(database: Database, address: str, server: int, *, people: int, seconds: float) -> dict[str, Any]:
    """The crowd's figures: without it, with it, without it again; the middle counts against the two others together.

    Args:
        database: The writer's.
        address: Of the screens.
        server: Their process; its share of a core says whether it was slow or starved.
        people: How many watch.
        seconds: Of each part.
    """
    before = written_for(database, seconds)
    command = [sys.executable, "-m", "benchmarks.ui_parts.visitor", address, LIVE, str(people)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as crowd:
        assert crowd.stdin is not None
        assert crowd.stdout is not None
        assert crowd.stdout.readline().strip() == "ready", "the crowd does not see the study"
        used, begun = cpu_seconds(server), time.monotonic()
        during = written_for(database, seconds)
        share = (cpu_seconds(server) - used) / (time.monotonic() - begun)
        time.sleep(LAST_LOOK_SECONDS)
        crowd.stdin.close()
        noted = json.loads(crowd.stdout.read())
    after = written_for(database, seconds)
    alone, beside = p95(before.write_seconds + after.write_seconds), p95(during.write_seconds)
    return {
        "sessions": people, "writes": len(during.write_seconds), **_refresh(noted["seen"], during.ended),
        "server_cores_used": share, "messages": noted["messages"], "message_bytes": noted["bytes"],
        "write_p95_seconds_alone": alone, "write_p95_seconds_watched": beside, "write_p95_ratio": beside / alone,
    }  # fmt: skip


def _refresh(noted: Sequence[Sequence[Sequence[float]]], ended: dict[int, float]) -> dict[str, Any]:
    """How long after a trial's end each page showed that number or a later one, in seconds."""
    late = []
    for seen in noted:
        for number, moment in ended.items():
            shown = next((when for when, count in seen if count >= number), None)
            if shown is not None:
                late.append(max(0.0, shown - moment))
    shown_all = sum(bool(seen) for seen in noted)
    return {
        "refresh_median_seconds": float(np.median(late)) if late else None,
        "refresh_p95_seconds": p95(late) if late else None,
        "sessions_that_saw": shown_all,
    }


def cpu_seconds(process: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def p95(values: Sequence[float]) -> float:
    """The 95th percentile."""
    return float(np.percentile(np.asarray(values), 95))
