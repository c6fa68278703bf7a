"""What the store costs, and how that grows: on a real PostgreSQL, each figure beside plain Optuna's in the same run.

    python -m benchmarks.scale [--only cost first crowd reads] [--seconds 60] [--json]

- ``cost``: what lies between two 2-second runs of 8 workers on one study, at 100 and at 10,000 trials.
- ``first``: a new worker's first proposal on a study of 5,000 trials, by sampler.
- ``crowd``: 64 workers that take, start and end trials as fast as the server lets them.
- ``reads``: what screens read: the list of 1,000 studies, the front and the table of a study of 10,000 trials.

Runs are made up, processes and server are real. Exit status 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.bench import print_json, say, spread
from benchmarks.scale_parts import made
from benchmarks.scale_parts.stand import Server, empty, optuna_url, server, together, url_of
from storage import overview, studies, trial_table, trials
from storage.database import Database
from tuner.search.projection import Projection

RUN_SECONDS = 2.0
COST_SHARE = 0.05
COST_WORKERS = 8
FEW, MANY = 100, 10_000
FLAT = 1.25
"""As slow as at few trials: within so much of it, or within a hundredth of the run."""
FIRST_TRIALS, FIRST_SECONDS, FIRST_TIMES = 5_000, 2.0, 3
SAMPLERS = ("random", "tpe", "auto")
CROWD_PROCESSES, CROWD_THREADS, CROWD_TRIALS = 8, 8, 640
CROWD_TIMES = 3
READ_SECONDS, READ_TIMES = 0.3, 7
STUDIES, TRIALS_EACH = 1_000, 90
START_SECONDS = 20.0
"""For the processes' imports, before all begin together."""


def cost(stand: Server, seconds: float) -> dict[str, Any]:
    """Seconds between two runs, by the number of trials; ours and plain Optuna's."""
    found: dict[str, Any] = {}
    for count in (FEW, MANY):
        with empty(stand) as database:
            spec = made.spec_of("grid")
            study = made.store(database, spec, count)
            Projection(database).heal(study.id)
            for whose in ("ours", "optuna"):
                answers = _sleepers(database, study.id, spec.study, whose, seconds)
                found[f"{whose} at {count}"] = _cost_of(answers)
                say(f"cost: {whose} at {count} trials: {found[f'{whose} at {count}']}")
    few, many = found[f"ours at {FEW}"], found[f"ours at {MANY}"]
    growth = many["gap_seconds"]["median"] / few["gap_seconds"]["median"]
    flat = growth <= FLAT or many["gap_seconds"]["median"] - few["gap_seconds"]["median"] <= RUN_SECONDS / 100
    return {
        **found,
        "growth": growth,
        "against_optuna": {
            count: found[f"ours at {count}"]["gap_seconds"]["median"]
            / found[f"optuna at {count}"]["gap_seconds"]["median"]
            for count in (FEW, MANY)
        },
        "target_share": COST_SHARE,
        "met": few["share"] < COST_SHARE and many["share"] < COST_SHARE and flat,
    }


def _sleepers(database: Database, study_id: int, name: str, whose: str, seconds: float) -> list[dict[str, Any]]:
    asked = {
        "mode": f"sleep {whose}", "url": url_of(database), "optuna_url": optuna_url(database), "study_id": study_id,
        "study_name": name, "sampler": "random", "seconds": seconds, "run_seconds": RUN_SECONDS,
        "begin_at": time.time() + START_SECONDS,
    }  # fmt: skip
    return together("benchmarks.scale_parts.worker", [{**asked, "number": number} for number in range(COST_WORKERS)])


def _cost_of(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    gaps = [gap for answer in answers for gap in answer["gaps"]]
    share = sum(gaps) / (sum(gaps) + RUN_SECONDS * len(gaps))
    cpu = sum(float(answer.get("cpu_seconds", 0.0)) for answer in answers)
    runs = sum(int(answer["runs"]) for answer in answers)
    return {"share": share, "runs": runs, "gap_seconds": spread(gaps), "cpu_seconds_a_run": cpu / max(runs, 1)}


def first(stand: Server, _seconds: float) -> dict[str, Any]:
    """Seconds until a new worker's first proposal, by sampler; plain Optuna's beside them, interleaved."""
    found: dict[str, Any] = {}
    for sampler in SAMPLERS:
        with empty(stand) as database:
            spec = made.spec_of(sampler)
            study = made.store(database, spec, FIRST_TRIALS)
            Projection(database).heal(study.id)
            asked = {
                "url": url_of(database), "optuna_url": optuna_url(database), "study_id": study.id,
                "study_name": spec.study, "sampler": sampler,
            }  # fmt: skip
            ours, theirs, said = [], [], ""
            for _ in range(FIRST_TIMES):
                (answer,) = together("benchmarks.scale_parts.worker", [{**asked, "mode": "first ours"}])
                (other,) = together("benchmarks.scale_parts.worker", [{**asked, "mode": "first optuna"}])
                ours.append(answer["seconds"])
                theirs.append(other["seconds"])
                said = answer["decided"]
            found[sampler] = {
                "seconds": spread(ours),
                "optuna_seconds": spread(theirs),
                "ratio": median(ours) / median(theirs),
                "decided": said,
            }
            say(f"first: {sampler}: {found[sampler]}")
    slowest = max(found[sampler]["seconds"]["median"] for sampler in SAMPLERS)
    return {**found, "trials": FIRST_TRIALS, "target_seconds": FIRST_SECONDS, "met": slowest < FIRST_SECONDS}


def crowd(stand: Server, _seconds: float) -> dict[str, Any]:
    """Trials per second of 64 workers, and whether anything went wrong; plain Optuna's beside them, interleaved."""
    ours, theirs, errors, contiguous = [], [], [], True
    for _ in range(CROWD_TIMES):
        with empty(stand) as database:
            study = made.store(database, made.spec_of("random"), 0)
            rate, wrong = _crowd("ours", {"url": url_of(database), "study_id": study.id})
            ours.append(rate)
            errors += wrong
            numbers = [trial.number for trial in trials.list_of(database, study.id)]
            ended = sum(trials.counts(database, study.id).values())
            contiguous &= numbers == list(range(CROWD_TRIALS)) and ended == CROWD_TRIALS
            Projection(database).heal(study.id)  # makes Optuna's tables
            name = made.optuna_study(optuna_url(database))
            rate, wrong = _crowd("optuna", {"url": optuna_url(database), "study_name": name})
            theirs.append(rate)
            say(f"crowd: ours {ours[-1]:.0f} trials a second, Optuna {rate:.0f}; errors {errors[:1]}, {wrong[:1]}")
    ratio = median(ours) / median(theirs)
    return {
        "workers": CROWD_PROCESSES * CROWD_THREADS,
        "trials_per_second": spread(ours),
        "optuna_trials_per_second": spread(theirs),
        "ratio": ratio,
        "errors": errors[:5],
        "numbers_contiguous": contiguous,
        "met": not errors and contiguous and ratio >= 1.0,
    }


def _crowd(mode: str, asked: Mapping[str, Any]) -> tuple[float, list[str]]:
    share = CROWD_TRIALS // (CROWD_PROCESSES * CROWD_THREADS)
    given = {
        **asked, "mode": mode, "workers": CROWD_THREADS, "trials": CROWD_TRIALS, "share": share,
        "begin_at": time.time() + START_SECONDS,
    }  # fmt: skip
    answers = together("benchmarks.scale_parts.crowd", [given] * CROWD_PROCESSES)
    took = max(answer["ended"] for answer in answers) - min(answer["begun"] for answer in answers)
    return sum(answer["done"] for answer in answers) / took, [error for each in answers for error in each["errors"]]


def reads(stand: Server, _seconds: float) -> dict[str, Any]:
    """Seconds of the reads that screens make; Optuna's own where it has such a read."""
    with empty(stand) as database:
        spec = made.spec_of("grid")
        study = made.store(database, spec, MANY)
        Projection(database).heal(study.id)
        made.more_studies(database, study.id, STUDIES - 1, TRIALS_EACH)
        theirs = made.optuna_reads(optuna_url(database), spec.study)
        ours: Mapping[str, Callable[[], object]] = {
            "list of studies": lambda: overview.list_studies(database),
            "front": lambda: trial_table.front(database, study.id),
            "table, first page": lambda: trial_table.page(database, study.id),
            "table, last page": lambda: trial_table.page(database, study.id, offset=MANY - 50),
            "table, by throughput": lambda: trial_table.page(
                database, study.id, order_by="throughput", descending=True
            ),
            "table, filtered": lambda: trial_table.page(
                database, study.id, outcomes=["completed"], knobs={"precision": "bf16-true"}
            ),
            "one study": lambda: studies.get(database, study.id),
        }
        found = {name: {"seconds": spread(_timed(read))} for name, read in ours.items()}
        listed = len(overview.list_studies(database))
        for name, read in theirs.items():
            found[name]["optuna_seconds"] = spread(_timed(read, 3))
            found[name]["ratio"] = found[name]["seconds"]["median"] / found[name]["optuna_seconds"]["median"]
    slowest = max(each["seconds"]["median"] for each in found.values())
    return {**found, "studies": listed, "trials": MANY, "target_seconds": READ_SECONDS, "met": slowest < READ_SECONDS}


def _timed(read: Callable[[], object], times: int = READ_TIMES) -> list[float]:
    seconds = []
    for _ in range(times):
        begun = time.perf_counter()
        read()
        seconds.append(time.perf_counter() - begun)
    return seconds


PARTS: Mapping[str, Callable[[Server, float], dict[str, Any]]] = {
    "cost": cost,
    "first": first,
    "crowd": crowd,
    "reads": reads,
}


def main(arguments: Sequence[str]) -> int:
    """As a command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--seconds", type=float, default=60.0, help="of each part of `cost`")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    with server() as stand:
        document = {name: PARTS[name](stand, asked.seconds) for name in asked.only}
    missed = [name for name, part in document.items() if not part["met"]]
    if asked.json:
        print_json({**document, "missed": missed})
    else:
        for name, part in document.items():
            print(name, *(f"  {key}: {value}" for key, value in part.items()), sep="\n")
        print(f"missed: {', '.join(missed) or 'nothing'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
