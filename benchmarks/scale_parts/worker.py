"""A worker's own work without its children: the product's search on a lane that sleeps, or plain Optuna that sleeps.

Started as a process of its own, so that workers share nothing but the server: ``python -m benchmarks.scale_parts.worker
'{"url": ..., ...}'``; the answer is one line of JSON. What is timed is what lies between two runs.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.scale_parts.made import DEVICE, GIB, LIMIT_BYTES, material
from objectives.trial.outcome import Ending, Verdict
from storage import studies, trials
from storage.database import Database
from tuner import spec as specs
from tuner.search import projection
from tuner.search.predictions import predicted_peaks
from tuner.search.samplers import SearchTask, make_proposer
from tuner.stop import Stop
from tuner.work.heartbeat import Heartbeat
from tuner.work.lane import Device, Lane
from tuner.work.leaving import Leaving
from tuner.work.outbox import Outbox
from tuner.work.projecting import Projector
from tuner.work.registration import register
from tuner.work.runner import RunEnd
from tuner.work.searching import Ready, Search
from tuner.work.session import Session

LEASE_SECONDS = 60.0


class SleepingLane(Lane):
    """Sleeps where others train. Remembers when."""

    def __init__(self, name: str, folder: Path, seconds: float) -> None:
        device = Device(kind="cpu", name=DEVICE, total_memory_bytes=LIMIT_BYTES, slot=name)
        super().__init__(device, preload=(), path="", folder=folder)
        self._seconds = seconds
        self.runs: list[tuple[float, float]] = []

    def run(self, *_request: Any, **_how: Any) -> RunEnd:
        """One run."""
        begun = time.monotonic()
        time.sleep(self._seconds)
        self.runs.append((begun, time.monotonic()))
        self.release()
        memory = {"peak_memory_bytes": GIB}
        measurement = {
            "throughput": 100.0, "throughput_unit": "samples_per_second", "relative_standard_error": 0.002,
            "blocks": 20, "window_seconds": self._seconds, "memory": memory, "hardware": {"name": DEVICE},
            "step_seconds": [0.1] * 20,
        }  # fmt: skip
        return RunEnd(
            verdict=Verdict(outcome="completed"), ending=Ending(), measurement=measurement, memory=memory,
            evidence={"phase": "done", "log_tail": "some words of a log\n" * 20}, seconds=self._seconds,
        )  # fmt: skip


def sleep_ours(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The product's search loop with its heartbeat and its projection, for so many seconds."""
    database = Database.open(asked["url"], application_name="tuner worker scale", connections=1)
    stop = Stop()
    with tempfile.TemporaryDirectory(prefix="tightfit-scale-") as folder:
        lane = SleepingLane(str(asked["number"]), Path(folder), float(asked["run_seconds"]))
        session, search = _search(database, asked, lane, stop)
        wait_until(asked["begin_at"])
        ends_at = time.monotonic() + float(asked["seconds"])
        session.look = lambda _session, _idle: stop.set() if time.monotonic() > ends_at else None
        assert session.worker_id is not None
        with (
            Heartbeat(database, session.worker_id, lease_seconds=LEASE_SECONDS, session=session),
            Projector(database, session.study.id, session.worker_id),
        ):
            begun = time.process_time()
            search.run()
            cpu = time.process_time() - begun
    return {"gaps": gaps(lane.runs), "runs": len(lane.runs), "cpu_seconds": cpu}


def first_of_ours(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What a worker that has just claimed a study does until its first run could start."""
    import optuna  # noqa: F401 - what must be imported is not timed, here as there

    from tuner.search.planner import planner  # noqa: F401

    database = Database.open(asked["url"], application_name="tuner worker scale", connections=1)
    database.read(lambda session: session.connection())
    with tempfile.TemporaryDirectory(prefix="tightfit-scale-") as folder:
        lane = SleepingLane("first", Path(folder), 0.0)
        begun = time.perf_counter()
        _, search = _search(database, asked, lane, Stop())
        decided = search._decide(lane)
        seconds = time.perf_counter() - begun
    said = decided.run.source if isinstance(decided, Ready) else str(decided)
    return {"seconds": seconds, "decided": said}


def _search(database: Database, asked: Mapping[str, Any], lane: Lane, stop: Stop) -> tuple[Session, Search]:
    study = studies.get(database, int(asked["study_id"]))
    spec = specs.from_mapping(study.spec)
    worker = register(database, lane.device, lease_seconds=LEASE_SECONDS, study_id=study.id)
    session = Session(
        database=database, study=study, spec=spec, lanes=(lane,), stop=Leaving(stop, grace_seconds=60.0),
        outbox=Outbox(Path(tempfile.mkdtemp(prefix="tightfit-scale-")), database), worker_id=worker.id, shared=True,
    )  # fmt: skip
    baseline, space = material(spec)
    task = SearchTask(space=space, limit_bytes=LIMIT_BYTES, predicted_peak_bytes=predicted_peaks({}), device_kind="cpu")
    return session, Search(session, space, baseline, make_proposer(spec.sampler, task))


def sleep_optuna(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Plain Optuna on the same rows: ask, sleep, tell."""
    study, space = _optuna(asked), _distributions(asked)
    wait_until(asked["begin_at"])
    ends_at, times = time.monotonic() + float(asked["seconds"]), []
    while time.monotonic() < ends_at:
        trial = study.ask(space)
        begun = time.monotonic()
        time.sleep(float(asked["run_seconds"]))
        times.append((begun, time.monotonic()))
        study.tell(trial, [100.0, float(GIB)])
    return {"gaps": gaps(times), "runs": len(times)}


def first_of_optuna(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Plain Optuna's first proposal: load the study, ask."""
    import optuna  # noqa: F401 - what must be imported is not timed, here as there

    space = _distributions(asked)
    begun = time.perf_counter()
    _optuna(asked).ask(space)
    return {"seconds": time.perf_counter() - begun, "decided": asked["sampler"]}


def _optuna(asked: Mapping[str, Any]) -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    made: dict[str, Callable[[], Any]] = {
        "random": optuna.samplers.RandomSampler,
        "grid": optuna.samplers.RandomSampler,
        "tpe": lambda: optuna.samplers.TPESampler(multivariate=True),
        "auto": lambda: optuna.samplers.TPESampler(multivariate=True),
    }
    storage = optuna.storages.RDBStorage(asked["optuna_url"], engine_kwargs={"pool_size": 1})
    return optuna.load_study(study_name=asked["study_name"], storage=storage, sampler=made[asked["sampler"]]())


def _distributions(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The space in Optuna's words, as the projection has written it."""
    database = Database.open(asked["url"], application_name="tuner worker scale", connections=1)
    study = studies.get(database, int(asked["study_id"]))
    made = projection.distributions(projection.choices(study, trials.baseline(database, study.id)))
    database.close()
    return dict(made)


def gaps(times: list[tuple[float, float]]) -> list[float]:
    """Seconds between the end of a run and the begin of the next."""
    return [after[0] - before[1] for before, after in pairwise(times)]


def wait_until(moment: float) -> None:
    """Until that ``time.time()``: all begin together, their imports behind them."""
    time.sleep(max(0.0, moment - time.time()))


MODES: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "sleep ours": sleep_ours,
    "sleep optuna": sleep_optuna,
    "first ours": first_of_ours,
    "first optuna": first_of_optuna,
}

if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps({"host": socket.gethostname(), **MODES[given["mode"]](given)}))
