"""Real children: whatever ends, nothing is left behind, and nothing else is touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import (
    PATIENCE_SECONDS,
    PRELOAD,
    WORKLOADS,
    chain,
    failure,
    finish,
    lives,
    make_request,
    pids_in,
    poll_until,
    run,
    wait_for,
)

from tuner.work.device_lock import DeviceBusyError, DeviceLock
from tuner.work.launcher import Launcher


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher(preload=PRELOAD) as made:
        yield made


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """An unrelated process that must survive everything."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process
        assert process.poll() is None, "an unrelated process was killed"
        process.kill()


@pytest.mark.parametrize("then", ["die", "return"])
def test_grandchildren_in_sessions_of_their_own_that_ignore_sigterm_are_ended(
    launcher: Launcher, tmp_path: Path, bystander: subprocess.Popen[bytes], then: str
) -> None:
    end, _ = run(launcher, tmp_path, "grandchildren", pids=str(tmp_path / "pids"), then=then)

    left = pids_in(tmp_path / "pids")
    assert len(left) == 4
    assert not any(map(lives, left))
    assert (end.orphans_killed, end.orphans_left) == (4, 0)


def test_a_killed_worker_leaves_no_process(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    with worker(tmp_path, lease_seconds=60) as process:
        pids = everyone(tmp_path)
        process.kill()
        wait_for(lambda: not any(map(lives, pids)), f"all of {pids} are gone")


def test_a_stopped_worker_loses_its_run_after_the_lease(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    with worker(tmp_path, lease_seconds=1.5) as process:
        template, child, *below = everyone(tmp_path)
        time.sleep(2.0)
        assert lives(child), "keepalives keep it alive"
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: not any(map(lives, [child, *below])), "the run has ended itself")
        assert lives(template)
        assert "said nothing for 1.5 s" in (tmp_path / "log").read_text()
        process.kill()
        wait_for(lambda: not lives(template), "the template is gone")


def worker(folder: Path, *, lease_seconds: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(WORKLOADS / "tests_worker.py"), str(folder), str(lease_seconds)])


def everyone(folder: Path) -> list[int]:
    """Template, child and four grandchildren of a test's worker."""
    wait_for((folder / "grandchildren").exists, "the run has started its grandchildren")
    said = json.loads((folder / "said").read_text())
    wait_for(lambda: len(pids_in(folder / "grandchildren")) == 4, "all grandchildren are there")
    pids = [said["template"], said["child"], *pids_in(folder / "grandchildren")]
    assert all(map(lives, pids))
    return pids


@pytest.mark.case("G19")
def test_a_run_holds_its_device_as_long_as_it_lives_and_no_longer(tmp_path: Path) -> None:
    with worker(tmp_path, lease_seconds=3) as process:
        everyone(tmp_path)
        process.send_signal(signal.SIGSTOP)
        second, waits = DeviceLock(tmp_path, "cpu"), list[str]()
        with pytest.raises(DeviceBusyError, match=f"process {process.pid}"):
            second.acquire(wait_seconds=0.3, on_wait=waits.append)
        assert len(waits) == 1
        process.kill()
        second.acquire(wait_seconds=PATIENCE_SECONDS)
        second.release()


def test_a_lost_template_takes_its_run_along_and_the_next_run_gets_another(
    tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    with Launcher(preload=PRELOAD) as launcher:
        request = make_request("grandchildren", pids=str(tmp_path / "pids"))
        process = launcher.start(request, tmp_path / "log")
        poll_until(process, lambda: len(pids_in(tmp_path / "pids")) == 4, "the grandchildren are there")
        below = set(pids_in(tmp_path / "pids")[:3])  # the fourth is adopted: found by its mark alone
        poll_until(process, lambda: below <= {p.pid for p in process._memory.seen}, "the worker has looked at the tree")
        first = launcher.template_pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        end, _ = finish(process)

        assert (end.launcher_lost, end.exit_code, end.signal, end.killed_by_us) == (True, None, None, False)
        left = [process.pid, *pids_in(tmp_path / "pids")]
        wait_for(lambda: not any(map(lives, left)), "its run and all below it are gone")
        again, _ = run(launcher, tmp_path, "nothing")
        assert (again.launcher_lost, again.exit_code) == (False, 1)
        assert launcher.template_pid != first


def test_closing_a_launcher_ends_what_still_runs(tmp_path: Path, bystander: subprocess.Popen[bytes]) -> None:
    launcher = Launcher()
    process = launcher.start(make_request("grandchildren", pids=str(tmp_path / "pids")), tmp_path / "log")
    poll_until(process, lambda: len(pids_in(tmp_path / "pids")) == 4, "the grandchildren are there")
    everybody = [process.pid, launcher.template_pid or 0, *pids_in(tmp_path / "pids")]
    launcher.close()

    wait_for(lambda: not any(map(lives, everybody)), "all are gone")
    assert finish(process)[0].launcher_lost


@pytest.mark.parametrize("do", ["hang_at_exit", "hang_in_thread"])
def test_a_teardown_that_hangs_is_ended_with_the_right_status(launcher: Launcher, tmp_path: Path, do: str) -> None:
    end, events = run(launcher, tmp_path, do)

    assert (end.exit_code, end.signal) == (1, None)
    assert failure(events).fields["phase"] == "build"
    assert "leaving took more than" in end.log_tail


@pytest.mark.case("A19")
def test_a_failing_process_ends_the_others_of_its_run_at_once(launcher: Launcher, tmp_path: Path) -> None:
    begun = time.monotonic()
    end, events = run(launcher, tmp_path, "peer_hangs", pids=str(tmp_path / "pids"))

    assert chain(events)[0]["text"] == "the other waits for ever"
    assert (end.exit_code, end.orphans_killed) == (1, 1)
    assert not any(map(lives, pids_in(tmp_path / "pids")))
    assert time.monotonic() - begun < PATIENCE_SECONDS


@pytest.mark.case("A19")
def test_two_runs_of_one_template_do_not_touch_each_other(launcher: Launcher, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first, second = (
        launcher.start(make_request("grandchildren", pids=str(tmp_path / name / "pids")), tmp_path / name / "log")
        for name in ("first", "second")
    )
    for process, name in ((first, "first"), (second, "second")):
        file = tmp_path / name / "pids"
        poll_until(process, lambda file=file: len(pids_in(file)) == 4, "all are there")
    first.kill("cancelled")
    end, _ = finish(first)

    assert end.killed_by_us
    # Whose the one without a mark is cannot be known while the other runs: it goes with the last of them.
    marked, unmarked, *forked = pids_in(tmp_path / "first" / "pids")
    assert not any(map(lives, [marked, *forked]))
    assert all(map(lives, pids_in(tmp_path / "second" / "pids")))
    second.kill("cancelled")
    end, _ = finish(second)
    assert end.signal == signal.SIGKILL
    assert not any(map(lives, [unmarked, *pids_in(tmp_path / "second" / "pids")]))
