"""The service's commands on an embedded store: what they answer, refuse and ask."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tuner.cli.outcome import run_command
from tuner.documents import DELETED, LISTED, STEERED, WORKERS, missing

SPEC = """\
study: mine
objective: {kind: "mine:Tiny"}
global_batch_size: 8
search: {micro_batch_size: [1, 2]}
limits: {trials: 2}
device: cpu
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TUNER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TUNER_DATABASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(SPEC)
    return tmp_path


def answered(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> dict[str, Any]:
    assert run_command([*arguments, "--json"]) == status
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_study_is_handed_in_steered_and_removed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = answered(capsys, "submit", "study.yaml", "--priority", "3", "--device-memory", "1GiB")
    assert missing(made, STEERED) == []
    assert (made["status"], made["priority"]) == ("queued", 3)
    assert made["needs"] == {"device_kind": "cpu", "memory_bytes": 2**30}
    (listed,) = answered(capsys, "list")["studies"]
    assert missing(listed, LISTED) == []
    assert answered(capsys, "pause", "mine")["status"] == "paused"
    assert answered(capsys, "submit", "study.yaml", "--trials", "5")["status"] == "queued"
    assert answered(capsys, "cancel", "mine")["status"] == "cancelled"
    assert answered(capsys, "resume", "mine")["status"] == "queued"
    assert answered(capsys, "workers")["workers"] == []
    assert missing({"workers": []}, WORKERS) == []
    assert missing(answered(capsys, "delete", "mine", "--yes"), DELETED) == []
    error = answered(capsys, "pause", "mine", status=2)["error"]
    assert "mine" in error["message"]


def test_another_study_of_the_same_name_is_refused_with_the_difference(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answered(capsys, "submit", "study.yaml")
    (folder / "study.yaml").write_text(SPEC.replace("global_batch_size: 8", "global_batch_size: 16"))
    assert "is another study" in answered(capsys, "submit", "study.yaml", status=2)["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["delete", "mine"], "--yes"),
        (["worker", "--device", "cpu", "--devices", "all"], "keep one of them"),
        (["worker", "--device", "cuda:7"], "cuda:7"),
        (["submit", "study.yaml", "--device-memory", "40%"], "write a size"),
        (["watch", "nobody"], "nobody"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run_command(arguments) in (1, 2)
    assert said in capsys.readouterr().err


def test_a_supervisor_restarts_a_worker_that_was_killed_and_drains_all(folder: Path) -> None:
    command = [sys.executable, "-m", "tuner", "worker", "--devices", "all"]
    with (folder / "log").open("wb") as log:
        supervisor = subprocess.Popen(command, stderr=log)
    try:
        first = started(folder, 1)[0]
        subprocess.run(["kill", "-9", str(first)], check=True)
        assert started(folder, 2)[1] != first
    finally:
        supervisor.send_signal(signal.SIGTERM)
        assert supervisor.wait(60) == 0
    from tuner import service

    ended = service.list_workers(ended=True)["workers"]
    assert [each["status"] for each in ended] in (["lost", "gone"], ["idle", "gone"], ["gone", "gone"])


def started(folder: Path, count: int) -> list[int]:
    """Process numbers of the workers that have registered."""
    from tuner import service

    give_up_at = time.monotonic() + 60
    while True:
        found = service.list_workers(ended=True)["workers"]
        if len(found) >= count:
            return [each["pid"] for each in found]
        assert time.monotonic() < give_up_at, (folder / "log").read_text()
        time.sleep(0.1)
