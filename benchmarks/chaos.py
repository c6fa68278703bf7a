"""Does anything get lost or counted twice, whatever dies? Sleeping trials under fire, on a real PostgreSQL.

    python -m benchmarks.chaos [--trials 200] [--workers 4] [--seed 0] [--lease 5] [--seconds 1500] [--json]

While the study runs, workers, templates, children and loaders' workers get SIGKILL at random moments, one worker is
stopped past its lease, connections are cut, and the server is stopped and started three times. A worker that has ended
is started again, as systemd would. The children keep a journal of their own, and a trigger in the server writes down
every change of an outcome: both are compared with what the store says at the end. Exit status 1: a target is missed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.bench import print_json
from benchmarks.chaos_parts.audit import Leftovers, install, transitions
from benchmarks.chaos_parts.faults import OUTAGES_AT, PAUSE_SECONDS, STOPPED_AT, Chaos
from benchmarks.chaos_parts.judgement import Seen, doubled, judge, unended
from benchmarks.chaos_parts.stage import STUDY, Stage, staged
from storage import runs, workers

SETTLE_LEASES = 3.0
"""After the study's end, so many leases until what was lost last must have been recovered."""


def chaos(
    folder: Path,
    *,
    count: int = 200,
    processes: int = 4,
    seed: int = 0,
    lease_seconds: float = 5.0,
    limit_seconds: float = 1500.0,
    outages_at: Sequence[float] = OUTAGES_AT,
    stopped_at: Sequence[float] = STOPPED_AT,
    pause_seconds: tuple[float, float] = PAUSE_SECONDS,
) -> dict[str, Any]:
    """One run; returns its figures.

    Args:
        folder: An empty one; logs, outbox and journal stay in it.
        count: Trials.
        processes: Worker processes.
        seed: Of what is done when.
        lease_seconds: Of the workers.
        limit_seconds: It is ended by force after so long.
        outages_at: Shares of the trials at which the server is stopped.
        stopped_at: Likewise for the worker that is stopped.
        pause_seconds: Shortest and longest time between two other faults.
    """
    begun = time.monotonic()
    with staged(folder, workers=processes, lease_seconds=lease_seconds) as stage:
        install(stage)
        stage.begin(count)
        made = Chaos(
            stage, trials=count, seed=seed, outages_at=outages_at, stopped_at=stopped_at, pause_seconds=pause_seconds
        )
        with Leftovers(stage) as leftovers:
            status = made.run(begun + limit_seconds)
        seconds = time.monotonic() - begun
        _settle(stage, lease_seconds * SETTLE_LEASES)
        stuck = stage.drain()
        orphans = stage.processes()
        seen = _seen(stage, made, lease_seconds)
        return {
            **judge(seen),
            "status": status,
            "stop_reason": stage.service.study(STUDY).stop_reason,
            "orphans": len(orphans),
            "workers_not_drained": stuck,
            "leftover_seconds_max": round(leftovers.longest_seconds, 1),
            "faults": dict(made.record.counts),
            "restarts": stage.restarts,
            "problems": [*unended(seen), *doubled(seen)][:20],
            "seconds": round(seconds, 1),
            "seed": seed,
            "workers": processes,
            "lease_seconds": lease_seconds,
        }


def _settle(stage: Stage, seconds: float) -> None:
    """Waits until nothing is open any more: what was lost at the very end has a lease to be recovered."""
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at:
        living = {process.pid for process in stage.living()}
        database = stage.service.database
        open_ones = runs.unfinished(database, study_id=stage.service.study(STUDY).id)
        dead = [each for each in workers.list_all(database) if each.pid not in living]
        if not open_ones and not dead:
            return
        time.sleep(0.2)


def _seen(stage: Stage, made: Chaos, lease_seconds: float) -> Seen:
    service = stage.service
    return Seen(
        trials=service.trials(STUDY),
        runs=service.runs(STUDY),
        workers=workers.list_all(service.database, ended=True),
        journal=stage.journal(),
        transitions=transitions(stage),
        hits=made.record.hits,
        outages=made.record.outages,
        lease_seconds=lease_seconds,
    )


def verdict(document: dict[str, Any]) -> list[str]:
    """Which targets were missed, in words; empty when all were met."""
    wanted = {
        "lost": document["lost"] == 0,
        "doubled": document["doubled"] == 0,
        "orphans": document["orphans"] == 0 and document["workers_not_drained"] == 0,
        "recovery": document["recovery_seconds_max"] <= 2 * document["lease_seconds"],
        "taught": document["taught"] == 0,
        "ended by itself": document["status"] == "finished",
        "numbers contiguous": document["numbers_contiguous"],
    }
    return [name for name, met in wanted.items() if not met]


def main(arguments: Sequence[str]) -> int:
    """As a command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lease", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=1500.0)
    parser.add_argument("--folder", type=Path, help="keeps logs and journal there")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="tightfit-chaos-"))
    try:
        document = chaos(
            folder, count=asked.trials, processes=asked.workers, seed=asked.seed, lease_seconds=asked.lease,
            limit_seconds=asked.seconds,
        )  # fmt: skip
    finally:
        if asked.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    missed = verdict(document)
    if asked.json:
        print_json({**document, "missed": missed})
    else:
        print("\n".join(f"{name:24} {value}" for name, value in document.items()))
        print(f"missed: {', '.join(missed) or 'nothing'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
