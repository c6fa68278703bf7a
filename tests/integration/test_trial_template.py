"""Real children: what they inherit, and when they start cold."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import PRELOAD, WORKLOADS, chain, failure, finish, make_request, run

from tuner.work.launcher import Launcher, LaunchError


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher(preload=PRELOAD) as made:
        yield made


@pytest.mark.case("G06", "E04")
@pytest.mark.parametrize("cold", [False, True])
def test_a_child_sees_no_database_and_no_socket_but_its_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cold: bool
) -> None:
    monkeypatch.setenv("TUNER_DATABASE_URL", "postgresql://user:hush@host/db")
    monkeypatch.setenv("SOME_STORE", "postgresql+psycopg2://user:hush@host/db")
    monkeypatch.setenv("PGPASSWORD", "hush")
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


CHECKS = {
    "": "None",
    "file = open(sys.argv[1]); template.DEVICE_FILES = (sys.argv[1],)": "has a device open",
    "import threading, time; "
    "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()": "the template has 2 threads",
    "me = os.getpid(); sys.modules['torch'] = SimpleNamespace("
    "cuda=SimpleNamespace(_is_in_bad_fork=lambda: os.getpid() != me))": "could not use torch.cuda",
    "sys.modules['torch'] = SimpleNamespace("
    "cuda=SimpleNamespace(_is_in_bad_fork=lambda: True, _is_compiled=lambda: False))": "None",
    "sys.modules['torch'] = SimpleNamespace("
    "xpu=SimpleNamespace(_is_in_bad_fork=lambda: os.kill(os.getpid(), 9)))": "a probe child ended with -9",
}


@pytest.mark.case("E09")
@pytest.mark.parametrize("poison", CHECKS)
def test_what_makes_a_fork_unsafe_is_seen_before_it(tmp_path: Path, poison: str) -> None:
    (tmp_path / "device").touch()
    program = (
        "import os, sys\nfrom types import SimpleNamespace\nfrom objectives.trial import template\n"
        f"{poison}\nsys.stdout.write(str(template.unsafe_to_fork()))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "device")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        said, _ = process.communicate()
    assert CHECKS[poison] in said.decode()


def test_the_worker_side_imports_no_torch() -> None:
    program = "import sys, tuner.work.launcher, objectives.trial.template; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
