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
from sqlalchemy import text

from storage import studies, workers

CONNECTIONS = text("SELECT application_name, count(*) FROM pg_stat_activity GROUP BY 1")


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
    assert "tightfit_worker_busy 1" in urllib.request.urlopen(f"{address}/metrics").read().decode()

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


@pytest.mark.slow
@pytest.mark.case("G01", "G19")
def test_a_stopped_worker_loses_its_child_its_lease_and_comes_back_as_another(two: Service) -> None:
    stopped, other = two.start_worker(), two.start_worker()
    two.submit("s", limits={"window": "8s", "trials": 40})
    run = two.open_run("s", stopped)
    stopped.send_signal(signal.SIGSTOP)
    gone_within = time.monotonic() + two.lease_seconds * 3 + 10
    gone(two, run.id)
    until(lambda: two.runs("s", id=run.id, cause="worker_lost"), "its run is declared lost")
    assert time.monotonic() < gone_within
    until(lambda: [each for each in two.runs("s", trial_id=run.trial_id) if each.attempt == 2], "its next attempt")
    stopped.send_signal(signal.SIGCONT)
    again = two.open_run("s", stopped)  # the same process under another id
    assert again.worker_id != run.worker_id
    first = next(each for each in two.runs("s") if each.id == run.id)
    assert (first.outcome, first.cause) == ("infra", "worker_lost")
    assert other.poll() is None


@pytest.mark.slow
@pytest.mark.case("G05")
def test_an_outage_costs_no_run_no_worker_and_no_lease(tmp_path: Path) -> None:
    with restartable_server() as server, service(server.server.url("postgres"), tmp_path) as made:
        made.start_worker(), made.start_worker()
        made.submit("s", limits={"window": "4s", "trials": 6})
        begun = {made.open_run("s", worker).id for worker in made.workers}
        server.stop()
        time.sleep(12)  # both runs end in it; six leases long
        assert all(worker.poll() is None for worker in made.workers)
        server.start()
        ended = until(lambda: [run for run in made.runs("s") if run.id in begun and run.outcome], "they are stored")
        until(lambda: all(run.outcome for run in made.runs("s") if run.id in begun), "both are stored")
        assert {run.outcome for run in ended} <= {"completed", "pruned"}
        until(lambda: made.study("s").status == "finished", "the study ends by itself")
        assert not [run for run in made.runs("s") if run.outcome in (None, "infra")]
        assert not list((tmp_path / "data" / "outbox").rglob("*.json"))


@pytest.mark.slow
@pytest.mark.case("G05")
def test_what_a_dead_worker_had_finished_is_delivered_by_the_next_one(tmp_path: Path) -> None:
    with restartable_server() as server, service(server.server.url("postgres"), tmp_path) as made:
        worker = made.start_worker()
        made.submit("s", limits={"window": "3s", "trials": 2})
        run = made.open_run("s", worker)
        server.stop()
        until(lambda: list((tmp_path / "data" / "outbox").rglob("*.json")), "the result waits in the outbox")
        worker.kill()
        worker.wait()
        server.start()
        made.start_worker()
        until(lambda: made.runs("s", id=run.id, outcome="completed"), "it is delivered")
        trial = next(each for each in made.trials("s") if each.id == run.trial_id)
        assert (trial.outcome, trial.number) == ("completed", 0)


@pytest.mark.slow
def test_a_more_urgent_study_comes_first_and_the_other_goes_on_afterwards(two: Service) -> None:
    two.start_worker()
    two.submit("slow", limits={"trials": 6, "window": "2s"})
    two.open_run("slow")
    two.submit("urgent", "--priority", "5", limits={"trials": 1, "window": "0.5s"})
    until(lambda: two.study("urgent").status == "finished", "the urgent one is done")
    assert two.study("slow").status != "finished"
    until(lambda: two.study("slow").status == "finished", "the other one is done, too")
    assert not [run for run in two.runs("slow") if run.outcome == "cancelled"]


@pytest.mark.slow
def test_what_is_not_listed_waits_with_the_reason_and_what_nobody_may_run_fails(two: Service) -> None:
    two.start_worker()
    two.submit("mine", objective={"kind": "somebody.elses:Objective"})
    reason = until(lambda: two.study("mine").stop_reason, "the refusal is shown")
    assert "somebody.elses" in reason
    assert "`objectives`" in reason
    assert two.study("mine").status == "queued"
    shown = json.loads(two.tuner("list", "--json"))["studies"]
    assert [each["stop_reason"] for each in shown] == [reason]


@pytest.mark.slow
@pytest.mark.case("G04")
def test_a_worker_holds_two_connections_and_is_named(two: Service) -> None:
    two.start_worker()
    two.submit("s", limits={"window": "3s"})
    two.open_run("s")
    counts = []
    for _ in range(20):
        rows = two.database.read(lambda session: session.execute(CONNECTIONS).all())
        counts.append(sum(count for name, count in rows if name.startswith("tuner worker")))
        time.sleep(0.2)
    assert sorted(counts)[len(counts) // 2] <= 2
    assert max(counts) <= 4
    assert studies.status_of(two.database, two.study("s").id) == "running"
