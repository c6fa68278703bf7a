"""The tests' own PostgreSQL leaves nothing behind and says how to install it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import postgres
import pytest

START = """
import sys, time
sys.path.insert(0, sys.argv[1])
from postgres import private_server
with private_server() as server:
    print(server.admin.port, server.execute("SHOW data_directory")[0][0], flush=True)
    time.sleep(60)
"""


def test_a_killed_test_session_leaves_no_server() -> None:
    command = [sys.executable, "-c", START, str(Path(postgres.__file__).parent)]
    session = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(postgres.__file__).parents[1])
    assert session.stdout is not None
    _, data = session.stdout.readline().split()
    server = int((Path(data) / "postmaster.pid").read_text().split()[0])
    session.send_signal(signal.SIGKILL)
    session.communicate()
    deadline = time.monotonic() + 20
    while Path(f"/proc/{server}").exists() and _state(server) != "Z":
        assert time.monotonic() < deadline, "PostgreSQL outlived its test session"
        time.sleep(0.02)
    subprocess.run(["rm", "-rf", str(Path(data).parent)], check=True)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


def test_a_machine_without_postgresql_is_told_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_installed", lambda: iter(()))
    monkeypatch.setattr(postgres, "_from_wheels", lambda: iter(()))
    with pytest.raises(pytest.fail.Exception, match="apt-get install postgresql"):
        postgres.find_binaries()


def test_the_server_does_not_run_as_root(postgres_server: postgres.Server) -> None:
    if "TUNER_TEST_DATABASE_URL" in os.environ:
        assert postgres_server.admin.database
        return
    data = postgres_server.execute("SHOW data_directory")[0][0]
    assert Path(data).stat().st_uid != 0
