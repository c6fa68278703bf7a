"""Real children: how each way to end is told, and that nothing is ever left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from objectives.contract import ObjectiveReference
from objectives.trial import process_table
from objectives.trial.protocol import Event, RunRequest
from tuner.work.device_lock import DeviceBusyError, DeviceLock
from tuner.work.launcher import Launcher, LaunchError
from tuner.work.trial_process import ProcessEnd, TrialProcess

WORKLOADS = Path(__file__).parents[1] / "workloads"
PATIENCE_SECONDS = 90.0
"""The machine may be busy: a condition that fails is waited for so long, one that holds ends the wait at once."""


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher(preload=["torch", "torch._dynamo", "objectives.trial.training_loop"]) as made:
        yield made


def make_request(do: str, *, kind: str = "tests_misbehaving:Misbehaving", **settings: Any) -> RunRequest:
    environment = settings.pop("environment", {})
    lease = settings.pop("keepalive_seconds", 60.0)
    reference = ObjectiveReference(kind=kind, settings={"do": do, **settings}, folder=str(WORKLOADS))
    return RunRequest(
        run=str(uuid.uuid4()),
        purpose="search",
        objective=reference,
        environment=environment,
        keepalive_seconds=lease,
    )


def finish(process: TrialProcess) -> tuple[ProcessEnd, list[Event]]:
    """Polls to the end."""
    events, give_up_at = [], time.monotonic() + PATIENCE_SECONDS
    while process.ended is None:
        assert time.monotonic() < give_up_at, events
        events += process.poll(0.5)
    return process.ended, events


def run(launcher: Launcher, folder: Path, do: str, **settings: Any) -> tuple[ProcessEnd, list[Event]]:
    return finish(launcher.start(make_request(do, **settings), folder / "log"))


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not (value := condition()):
        assert time.monotonic() < give_up_at, f"waited in vain until {what}"
        time.sleep(0.02)
    return value


def lives(pid: int) -> bool:
    process = process_table.read(pid)
    return process is not None and process.alive


def poll_until(process: TrialProcess, condition: Callable[[], Any], what: str) -> Any:
    def polled() -> Any:
        process.poll(0.05)
        assert process.ended is None, process.ended
        return condition()

    return wait_for(polled, what)


def pids_in(file: Path) -> list[int]:
    return [int(word) for word in file.read_text().split()] if file.exists() else []


def failure(events: list[Event]) -> Event:
    (found,) = [event for event in events if event.event == "failure"]
    return found


def chain(events: list[Event]) -> list[dict[str, Any]]:
    return list(failure(events).fields["chain"])


# --- the true ending -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 3, 137])
def test_an_exit_status_is_told_as_it_was(launcher: Launcher, tmp_path: Path, code: int) -> None:
    end, events = run(launcher, tmp_path, "exit_now", code=code)

    assert (end.exit_code, end.signal, end.killed_by_us) == (code, None, False)
    assert end.log_tail == "last words without a newline"
    assert [event.event for event in events] == ["started", "phase"]


@pytest.mark.case("A21", "A36")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGBUS, signal.SIGSEGV])
def test_a_signal_nobody_of_ours_sent_is_told_as_such(launcher: Launcher, tmp_path: Path, number: int) -> None:
    end, _ = run(launcher, tmp_path, "send_self", number=int(number))

    assert (end.exit_code, end.signal, end.killed_by_us, end.kill_reason) == (None, number, False, None)


@pytest.mark.case("A36")
@pytest.mark.parametrize(("do", "number"), [("segfault", signal.SIGSEGV), ("abort", signal.SIGABRT)])
def test_a_crash_leaves_its_stack_in_the_log_and_the_next_run_works(
    launcher: Launcher, tmp_path: Path, do: str, number: int
) -> None:
    end, _ = run(launcher, tmp_path, do)

    assert end.signal == number
    assert "tests_misbehaving.py" in end.log_tail
    assert run(launcher, tmp_path, "nothing")[0].exit_code == 1


@pytest.mark.case("A21")
@pytest.mark.parametrize("reason", ["trial_time", "dominated"])
def test_our_own_kill_is_remembered_with_its_reason(launcher: Launcher, tmp_path: Path, reason: str) -> None:
    process = launcher.start(make_request("sleep"), tmp_path / "log")
    poll_until(process, lambda: "sleeping" in (tmp_path / "log").read_text(), "it sleeps")
    process.kill(reason)
    process.kill("too late")
    end, _ = finish(process)

    assert (end.signal, end.killed_by_us, end.kill_reason) == (signal.SIGKILL, True, reason)
    process.kill("after its end")
    assert process.ended == end


def test_a_kill_that_comes_after_the_end_is_not_ours(launcher: Launcher, tmp_path: Path) -> None:
    process = launcher.start(make_request("send_self", number=9), tmp_path / "log")
    wait_for(lambda: not lives(process.pid), "it is dead")
    process.kill("trial_time")
    end, _ = finish(process)

    assert (end.signal, end.killed_by_us, end.kill_reason) == (signal.SIGKILL, False, None)


@pytest.mark.case("E04")
def test_a_run_that_hangs_before_its_first_step_can_be_ended_at_any_time(launcher: Launcher, tmp_path: Path) -> None:
    process = launcher.start(make_request("sleep"), tmp_path / "log")
    os.kill(process.pid, signal.SIGSTOP)
    process.stop("dominated")
    process.kill("trial_time")
    end, _ = finish(process)

    assert (end.signal, end.killed_by_us, end.kill_reason) == (signal.SIGKILL, True, "dominated")


def test_python_exit_statuses(launcher: Launcher, tmp_path: Path) -> None:
    silent, events = run(launcher, tmp_path, "exit_python", code=0)
    assert silent.exit_code == 0
    assert not {"failure", "finished"} & {event.event for event in events}

    told, events = run(launcher, tmp_path, "exit_python", code=3)
    assert told.exit_code == 3
    assert chain(events)[0]["cls"] == "SystemExit"


# --- what a failure tells --------------------------------------------------------------------------------------------


@pytest.mark.case("D03")
def test_a_failure_tells_its_whole_chain_outermost_first(launcher: Launcher, tmp_path: Path) -> None:
    end, events = run(launcher, tmp_path, "raise_chain", text="No space left")

    assert end.exit_code == 1
    assert failure(events).fields["phase"] == "build"
    told = chain(events)
    assert [record["cls"] for record in told] == ["tests_misbehaving.Recovered", "ValueError", "OSError"]
    assert told[0]["bases"] == ["RuntimeError", "Exception", "BaseException"]
    assert told[2]["text"] == "No space left"
    assert "in raise_chain" in failure(events).fields["traceback"]


def test_a_group_tells_its_members(launcher: Launcher, tmp_path: Path) -> None:
    _, events = run(launcher, tmp_path, "raise_group")

    assert [record["cls"] for record in chain(events)] == ["ExceptionGroup", "KeyError", "MemoryError"]


def test_a_text_of_five_megabytes_with_bytes_no_store_takes_is_cut_and_cleaned(
    launcher: Launcher, tmp_path: Path
) -> None:
    end, events = run(launcher, tmp_path, "raise_text", megabytes=5)

    text = chain(events)[0]["text"]
    assert text.startswith("start\N{REPLACEMENT CHARACTER}")
    assert text.endswith("xend")
    assert len(text) < 100_000
    assert "\0" not in text
    assert end.broken_lines == 0


def test_an_exception_without_a_readable_text_is_still_told(launcher: Launcher, tmp_path: Path) -> None:
    _, events = run(launcher, tmp_path, "raise_unreadable")

    assert chain(events)[0]["text"] == "(its text cannot be read: TypeError)"


def test_a_run_out_of_memory_can_still_tell(launcher: Launcher, tmp_path: Path) -> None:
    _, events = run(launcher, tmp_path, "memory_error")

    assert chain(events)[0]["cls"] == "MemoryError"


def test_an_unknown_purpose_is_a_clear_failure(launcher: Launcher, tmp_path: Path) -> None:
    asked = RunRequest(run=str(uuid.uuid4()), purpose="soak", objective=make_request("nothing").objective)
    _, events = finish(launcher.start(asked, tmp_path / "log"))

    assert "cannot run purpose 'soak'" in chain(events)[0]["text"]


def test_dirty_output_is_kept_readable(launcher: Launcher, tmp_path: Path) -> None:
    end, _ = run(launcher, tmp_path, "dirty", megabytes=5)

    assert end.log_head.startswith("HEAD \ufffd \ufffd\ufffd red\n 10%\n 20%\n")
    assert end.log_tail.endswith("(a warning only)\nTAIL\n")
    assert len(end.log_head) + len(end.log_tail) < 200_000


def test_output_without_end_does_not_fill_the_disk(launcher: Launcher, tmp_path: Path) -> None:
    end, _ = run(launcher, tmp_path, "flood", megabytes=200)

    assert end.log_tail.endswith("FLOOD OVER\n")
    assert end.log_head.startswith("yyy")
    assert (tmp_path / "log").stat().st_size < 150 << 20


# --- nothing is left behind ------------------------------------------------------------------------------------------


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
    with Launcher() as launcher:
        request = make_request("grandchildren", pids=str(tmp_path / "pids"))
        process = launcher.start(request, tmp_path / "log")
        poll_until(process, lambda: len(pids_in(tmp_path / "pids")) == 4, "the grandchildren are there")
        seen_at = time.monotonic() + 6.0
        poll_until(process, lambda: time.monotonic() > seen_at, "the worker has looked at the tree")
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


# --- what a child inherits -------------------------------------------------------------------------------------------


@pytest.mark.case("G06", "E04")
@pytest.mark.parametrize("cold", [False, True])
def test_a_child_sees_no_database_and_no_socket_but_its_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cold: bool
) -> None:
    monkeypatch.setenv("TUNER_DATABASE_URL", "postgresql://user:hush@host/db")
    monkeypatch.setenv("SOME_STORE", "postgresql+psycopg2://user:hush@host/db")
    monkeypatch.setenv("PGPASSWORD", "hush")
    import socket

    with Launcher() as launcher, socket.create_server(("127.0.0.1", 0)) as server:
        os.set_inheritable(server.fileno(), True)
        process = launcher.start(make_request("show"), tmp_path / "log", cold=cold)
        end, _ = finish(process)

    shown = dict(line.split(" ", 1) for line in end.log_tail.splitlines() if " " in line)
    assert shown["FILES"].count("socket:") == 1
    assert "hush" not in end.log_tail
    assert "'TUNER_DATABASE_URL'" not in shown["ENV"]
    assert "'TOKENIZERS_PARALLELISM'" in shown["ENV"]
    assert re.search(rf"TIGHTFIT_RUN={process.run}\\x00", shown["INITIAL"])
    assert shown["GROUP"] == "True True"
    assert shown["SIGNALS"].startswith(("0 ", "Handlers.SIG_DFL"))
    assert shown["CWD"] == f"{WORKLOADS} {WORKLOADS}"


def test_a_forked_loader_worker_does_not_hold_the_channel(launcher: Launcher, tmp_path: Path) -> None:
    end, _ = run(launcher, tmp_path, "loader_like", pids=str(tmp_path / "pids"))

    assert end.exit_code == 7
    assert "FORKED FILES" in end.log_tail
    assert "socket:" not in end.log_tail
    assert end.orphans_killed == 1


# --- warm and cold ---------------------------------------------------------------------------------------------------


@pytest.mark.case("E09", "D12", "G20")
def test_equal_runs_end_equally_whatever_ran_before(launcher: Launcher, tmp_path: Path) -> None:
    alone, before = run(launcher, tmp_path, "raise_chain")
    _, told = run(launcher, tmp_path, "memory_error")
    after, events = run(launcher, tmp_path, "raise_chain")

    assert chain(told)[0]["cls"] == "MemoryError"
    assert chain(events) == chain(before)
    assert (alone.exit_code, alone.warm, after.exit_code, after.warm) == (1, True, 1, True)
    assert alone.peak_data_bytes is not None
    assert after.peak_data_bytes == pytest.approx(alone.peak_data_bytes, rel=0.05)


@pytest.mark.case("E09")
def test_a_template_with_threads_starts_its_children_cold_and_says_so(tmp_path: Path) -> None:
    with Launcher(preload=["tests_with_threads", "no_such_module"], path=str(WORKLOADS)) as launcher:
        end, events = run(launcher, tmp_path, "nothing", kind="tests_with_threads:Misbehaving")

    assert not end.warm
    assert end.cold_reason is not None
    assert "the template has 2 threads" in end.cold_reason
    assert "tests_with_threads starts 1 thread" in end.cold_reason
    assert "ModuleNotFoundError" in launcher.problems["no_such_module"]
    assert chain(events)[0]["text"] == "build of nothing is over"


def test_a_cold_start_can_be_asked_for_and_put_under_a_profiler(launcher: Launcher, tmp_path: Path) -> None:
    process = launcher.start(make_request("nothing"), tmp_path / "log", prefix=["nice", "-n", "1"])
    end, events = finish(process)

    assert (end.warm, end.cold_reason, end.exit_code) == (False, "asked for: under nice", 1)
    assert failure(events).fields["phase"] == "build"


def test_a_profiler_that_is_not_there_is_said_at_once(launcher: Launcher, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="no-such-profiler"):
        launcher.start(make_request("nothing"), tmp_path / "log", prefix=["no-such-profiler"])


def test_process_start_environment_reaches_the_child_from_its_very_start(tmp_path: Path) -> None:
    with Launcher(environment={"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "2"}) as launcher:
        end, _ = run(launcher, tmp_path, "show", environment={"LATER": "value"})

    initial = next(line for line in end.log_tail.splitlines() if line.startswith("INITIAL"))
    assert "MALLOC_ARENA_MAX=1" in initial
    assert "OMP_NUM_THREADS=2" in initial
    assert "LATER" not in initial
    assert "'LATER'" in end.log_tail


def test_a_template_that_dies_at_once_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text("import os; os.write(2, b'the license server is down'); os._exit(3)")
    with (
        Launcher(environment={"PYTHONPATH": str(broken)}) as launcher,
        pytest.raises(LaunchError, match="the license server is down"),
    ):
        launcher.start(make_request("nothing"), tmp_path / "log")
