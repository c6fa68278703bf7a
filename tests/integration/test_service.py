"""The service with real workers on a real PostgreSQL: submit, steer, kill, stop, drain, and the store away."""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from service import Service, restartable_server, service, until
from storage import studies, workers


@pytest.fixture
def two(empty_postgres_url: str, tmp_path: Path) -> Iterator[Service]:
    """A service with room for two workers."""
    with service(empty_postgres_url, tmp_path) as made:
        yield made


def gone(made: Service, run: str) -> None:
    until(lambda: not made.children(run), f"nothing of run {run} is left", 10)


@pytest.mark.case("G01", "G02", "G18", "G19")
def test_a_killed_worker_loses_nothing_and_a_drained_one_hands_back(two: Service) -> None:
    first, second = two.start_worker(), two.start_worker()
    until(lambda: len(workers.list_all(two.database)) == 2, "both workers are there")
    begun = time.monotonic()
    assert two.submit("s", limits={"window": "3s"})["status"] == "queued"
    until(lambda: two.study("s").status == "running", "a worker has it", 5)
    assert time.monotonic() - begun < 30  # the command itself starts an interpreter
    lost = two.open_run("s", first)
    first.kill()
    killed_at = time.monotonic()
    gone(two, lost.id)
    until(lambda: two.runs("s", id=lost.id, cause="worker_lost"), "its run is declared lost")
    assert time.monotonic() - killed_at < 3 * two.lease_seconds + 5
    next_one = until(
        lambda: [run for run in two.runs("s", trial_id=lost.trial_id) if run.attempt == 2], "its next attempt"
    )[0]
    assert next_one.worker_id != lost.worker_id

    drained = two.open_run("s", second)
    second.send_signal(signal.SIGTERM)
    assert second.wait(30) == 0
    gone(two, drained.id)
    assert not [run for run in two.runs("s") if run.outcome is None]
    assert two.study("s").status == "queued"
    assert workers.list_all(two.database) == ()
    numbers = [trial.number for trial in two.trials("s")]
    assert numbers == list(range(len(numbers)))


def test_a_person_steers_and_is_obeyed_within_two_seconds(two: Service) -> None:
    two.start_worker("--metrics-port", "0")
    two.submit("s", limits={"window": "5s"})
    run = two.open_run("s")
    address = next(fact["address"] for fact in two.log(0) if "address" in fact)
    health = json.loads(urllib.request.urlopen(f"{address}/healthz").read())
    assert (health["healthy"], health["study"]) == (True, "s")
    assert 'tightfit_worker_busy 1' in urllib.request.urlopen(f"{address}/metrics").read().decode()

    begun = time.monotonic()
    two.pause("s")
    until(lambda: not two.children(run.id), "its child is gone")
    assert time.monotonic() - begun < 4
    until(lambda: two.runs("s", id=run.id, outcome="cancelled"), "its end is stored")
    trial = next(each for each in two.trials("s") if each.id == run.trial_id)
    assert (two.study("s").status, trial.outcome) == ("paused", None)
    assert json.loads(two.tuner("resume", "s", "--json"))["status"] == "queued"
    again = two.open_run("s")
    assert (again.trial_id, again.attempt) == (run.trial_id, 2)
    assert json.loads(two.tuner("cancel", "s", "--json"))["status"] == "cancelled"
    gone(two, again.id)
    until(lambda: all(each.outcome == "cancelled" for each in two.trials("s") if each.id == run.trial_id), "closed")
    assert two.study("s").status == "cancelled"
    facts = [fact for fact in two.log(0) if fact["event"] == "run ended"]
    assert {"study", "trial", "run", "worker"} <= set(facts[0])
