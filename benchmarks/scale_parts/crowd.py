"""Many workers at once on one server: the store's own steps of a trial, against Optuna's ask and tell.

Started as a process of its own with so many threads, each of them a worker with a store of its own:
``python -m benchmarks.scale_parts.crowd '{"url": ..., ...}'``.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.scale_parts.made import DEVICE, EVIDENCE, GIB, STEP_SECONDS
from storage import runs, trials, workers
from storage.database import Database

LEASE_SECONDS = 60.0
CONFIG = {"micro_batch_size": 4, "precision": "bf16-mixed", "loss": "full", "optimizer": "adamw", "loader_workers": 2}


def ours(asked: Mapping[str, Any], worker: int) -> Callable[[], int]:
    """A worker that takes trials until there are enough of them; how many it had."""
    database = Database.open(asked["url"], application_name="tuner worker crowd", connections=1)
    study_id, name = int(asked["study_id"]), str(uuid.uuid4())
    workers.register(
        database, id=name, host=f"host-{worker}", pid=worker, device_kind="cpu", device_name=DEVICE,
        lease_seconds=LEASE_SECONDS,
    )  # fmt: skip

    def work() -> int:
        done = 0
        while (trial := _reserved(database, study_id, int(asked["trials"]), name)) is not None:
            run = str(uuid.uuid4())
            runs.start(database, id=run, study_id=study_id, trial_id=trial, purpose="search", worker_id=name)
            if done % 10 == 0:
                workers.beat(database, name, runs=(run,))
            _end(database, run, trial)
            done += 1
        database.close()
        return done

    return work


def _reserved(database: Database, study_id: int, most: int, name: str) -> int | None:
    key = uuid.uuid4().hex
    made = trials.reserve(
        database, study_id=study_id, config=CONFIG, config_key=key, source="random", max_trials=most, worker_id=name
    )
    return None if made is None else made.id


def _end(database: Database, run: str, trial: int) -> None:
    measured = {"throughput": 100.0, "peak_memory_bytes": GIB, "seconds": 2.0, "evidence": EVIDENCE}
    runs.record_end(
        database, id=run, outcome="completed", trial_id=trial,
        run={**measured, "step_seconds": STEP_SECONDS, "hardware": {"name": DEVICE}},  # type: ignore[typeddict-item]
        trial={**measured, "throughput_unit": "samples_per_second", "windows": 1},  # type: ignore[typeddict-item]
    )  # fmt: skip


def optuna(asked: Mapping[str, Any], _worker: int) -> Callable[[], int]:
    """The same number of trials, asked and told; each worker has a storage of its own."""
    import optuna
    from optuna.distributions import CategoricalDistribution

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = {name: CategoricalDistribution([value, f"not {value}"]) for name, value in CONFIG.items()}
    storage = optuna.storages.RDBStorage(asked["url"], engine_kwargs={"pool_size": 1}, skip_table_creation=True)
    study = optuna.load_study(study_name=asked["study_name"], storage=storage, sampler=optuna.samplers.RandomSampler())
    share = int(asked["share"])

    def work() -> int:
        for _ in range(share):
            study.tell(study.ask(space), [100.0, float(GIB)])
        return share

    return work


def main(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the workers ready, starts them together, and tells how long they took and what went wrong."""
    make = {"ours": ours, "optuna": optuna}[asked["mode"]]
    count = int(asked["workers"])
    with ThreadPoolExecutor(count) as pool:
        made = list(pool.map(lambda number: make(asked, number), range(count)))
        time.sleep(max(0.0, asked["begin_at"] - time.time()))
        begun = time.time()
        answers = [pool.submit(work) for work in made]
        errors = [repr(error) for answer in answers if (error := answer.exception()) is not None]
        done = sum(answer.result() for answer in answers if answer.exception() is None)
    return {"done": done, "begun": begun, "ended": time.time(), "errors": errors, "threads": threading.active_count()}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
