"""The small parts of a service worker: when it leaves, its patience, its clock, its device, what it says."""

from __future__ import annotations

import io
import json
import logging
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from storage.errors import StoreUnavailable
from tuner.errors import TightfitError
from tuner.progress import Notice, StepSeen, TrialEnded
from tuner.stop import Stop
from tuner.work import logs, patience
from tuner.work.clock import StudyClock
from tuner.work.health import Figures, HealthServer
from tuner.work.leaving import Leaving
from tuner.work.patience import patiently
from tuner.work.run_log import RunLog, remove_stale_logs
from tuner.work.seat import take_seat, worker_device

CPU = {"kind": "cpu", "name": "EPYC", "uuid": "", "total_memory_bytes": 16 * 2**30, "cores": 8, "visible": True}
GPUS = [
    {"kind": "cuda", "name": "H100", "uuid": f"GPU-{letter * 4}-1", "total_memory_bytes": 80 * 2**30, "visible": True}
    for letter in "ab"
]


class TestLeaving:
    def test_a_drain_starts_nothing_and_lets_the_run_end_within_its_grace(self) -> None:
        process = Stop()
        leaving = Leaving(process, grace_seconds=0.1)
        assert (leaving.is_set(), leaving.ends_run(), leaving.why) == (False, False, None)
        process.set()
        assert (leaving.is_set(), leaving.ends_run(), leaving.why) == (True, False, "asked")
        time.sleep(0.12)
        assert leaving.ends_run()

    def test_the_second_request_ends_the_run_at_once(self) -> None:
        process = Stop()
        leaving = Leaving(process, grace_seconds=60)
        process.set()
        process.set()
        assert leaving.ends_run()

    def test_what_a_person_does_to_the_study_ends_the_run_a_more_urgent_study_does_not(self) -> None:
        leaving = Leaving(Stop())
        leaving.leave("elsewhere")
        assert (leaving.is_set(), leaving.ends_run()) == (True, False)
        leaving.leave("paused")
        assert (leaving.why, leaving.ends_run()) == ("paused", True)
        leaving.leave("elsewhere")
        assert leaving.why == "paused"


class TestPatience:
    def test_work_is_done_once_the_store_is_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(patience, "PAUSES_SECONDS", (0.001,))
        tries, said = [], []

        def work() -> str:
            tries.append(1)
            if len(tries) < 4:
                raise StoreUnavailable("it is down")
            return "done"

        assert patiently(work, on_wait=said.append, on_back=lambda _: said.append("back")) == "done"
        assert said == ["it is down", "back"]

    def test_it_gives_up_when_asked_to(self) -> None:
        def away() -> None:
            raise StoreUnavailable("it is down")

        with pytest.raises(StoreUnavailable):
            patiently(away, give_up=lambda: True)


class TestClock:
    def test_workers_together_add_the_wall_time_once(self) -> None:
        now = [0.0]
        one, two = (StudyClock(100.0, now=lambda: now[0]) for _ in range(2))
        now[0] = 10.0
        assert one.elapsed_seconds() == 110.0
        assert one.take(workers=2) + two.take(workers=2) == 10.0
        one.set(110.0)
        now[0] = 13.0
        assert one.elapsed_seconds() == 113.0

    def test_waiting_for_a_device_is_not_the_studys_time(self) -> None:
        now = [0.0]
        clock = StudyClock(0.0, now=lambda: now[0])
        now[0] = 10.0
        clock.forgive(8.0)
        assert clock.elapsed_seconds() == 2.0
        assert clock.take() == 2.0


class TestSeat:
    @pytest.mark.parametrize("asked", ["cuda:1", "1", "GPU-bbbb-1", "GPU-bbbb", "bbbb-1", "gpu-BBBB"])
    def test_a_gpu_is_found_by_any_spelling_and_has_its_share_of_the_cores(self, asked: str) -> None:
        device = worker_device(asked, listed=[*GPUS, CPU])
        assert (device.uuid, device.threads) == ("GPU-bbbb-1", 4)

    @pytest.mark.parametrize("asked", ["cuda:2", "auto", "cuda", "GPU-", "x"])
    def test_what_names_none_or_several_is_refused_with_what_there_is(self, asked: str) -> None:
        with pytest.raises(TightfitError, match="cuda:0 GPU-aaaa-1"):
            worker_device(asked, listed=[*GPUS, CPU])

    def test_a_cpu_may_be_divided_for_testing_and_says_so(self, tmp_path: Path) -> None:
        device = worker_device("cpu", slots=4, listed=[CPU])
        assert (device.name, device.threads) == ("EPYC (2 of 8 cores, 4 slots)", 2)
        taken = [take_seat(tmp_path, device, 4) for _ in range(4)]
        assert len({device.lock_name for device, _ in taken}) == 4
        with pytest.raises(TightfitError, match="all 4 slots"):
            take_seat(tmp_path, device, 4)
        for _, lock in taken:
            lock.release()

    @pytest.mark.case("G19")
    def test_a_device_has_one_worker(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tuner.work.seat.SEAT_WAIT_SECONDS", 0.0)
        device = worker_device("auto", listed=[CPU])
        _, lock = take_seat(tmp_path, device)
        with pytest.raises(TightfitError, match="another worker of this machine owns EPYC"):
            take_seat(tmp_path, device)
        lock.release()


class TestHealth:
    def test_health_and_metrics_answer_on_loopback(self) -> None:
        figures = Figures(lease_seconds=60, labels={"worker": "w", "device": 'a "b"'}, study="s")
        figures.runs.update(["completed", "completed", "infra"])
        with HealthServer(figures, 0) as server:
            address = f"http://127.0.0.1:{server.port}"
            health = json.loads(urllib.request.urlopen(f"{address}/healthz").read())
            metrics = urllib.request.urlopen(f"{address}/metrics").read().decode()
            with pytest.raises(urllib.error.HTTPError) as error:
                urllib.request.urlopen(f"{address}/else")
            error.value.close()
        assert (health["healthy"], health["study"], health["worker"]) == (True, "s", "w")
        assert 'tightfit_worker_runs_total{outcome="completed"} 2' in metrics
        assert r'device="a \"b\""' in metrics
        for line in metrics.splitlines():
            assert line.startswith("# ") or len(line.rsplit(" ", 1)) == 2

    def test_a_store_that_is_silent_for_a_lease_is_no_health(self) -> None:
        figures = Figures(lease_seconds=1, heard_at=lambda: time.monotonic() - 5)
        status, document = figures.health()
        assert (status, document["healthy"]) == (503, False)
        assert "5 s" in str(document["reason"])


class TestLogs:
    def said(self, progress: Any) -> list[dict[str, Any]]:
        stream = io.StringIO()
        root = logging.getLogger("tuner")
        before = (root.handlers, root.propagate, root.level)
        logs.set_up(stream)
        try:
            logs.say(progress, {"worker": "w", "study": "s"})
        finally:
            root.handlers, root.propagate = before[0], before[1]
            root.setLevel(before[2])
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    def test_a_fact_is_a_line_with_its_ids(self) -> None:
        (line,) = self.said(TrialEnded(number=3, outcome="completed", run="r", throughput=float("nan")))
        wanted = {"event": "run ended", "trial": 3, "run": "r", "worker": "w", "study": "s", "throughput": None}
        assert {name: line[name] for name in wanted} == wanted

    def test_steps_are_not_logged_and_words_stay_on_one_line(self) -> None:
        assert self.said(StepSeen(number=1, steps=2)) == []
        (line,) = self.said(Notice(text="one\ntwo"))
        assert line["event"] == "one\ntwo"


def test_logs_that_nobody_has_open_are_removed_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "dead.log").write_text("left behind")
    alive = RunLog(tmp_path / "alive.log")
    assert remove_stale_logs(tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["alive.log"]
    alive.close()
