"""How commands end: status, one line instead of a traceback, and the settings and signals behind it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.cli.outcome import run_command
from tuner.cli.running import stop_on_signals
from tuner.errors import StoreError
from tuner.settings import Settings
from tuner.stop import Stop

BAD = "study: x\nobjective: {kind: 'a:b'}\nglobal_batch_size: 8\nsearch: {micro_batch_size: [3]}\n"


@pytest.fixture
def bad_spec(tmp_path: Path) -> str:
    (tmp_path / "bad.yaml").write_text(BAD)
    return str(tmp_path / "bad.yaml")


def test_a_bad_spec_is_two_with_line_reason_and_fix(bad_spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", bad_spec]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"tuner: {bad_spec}:4: search.micro_batch_size[0]: ")
    assert "Traceback" not in err


def test_json_says_the_problems_in_one_document(bad_spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", bad_spec, "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["exit_status"] == 2
    assert [problem["line"] for problem in document["error"]["problems"]] == [4]


def test_debug_shows_the_traceback_too(bad_spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["run", bad_spec, "--debug"], ["--debug", "run", bad_spec]):
        assert run_command(arguments) == 2
        assert "Traceback" in capsys.readouterr().err


def test_a_wrong_option_value_names_the_option(bad_spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", bad_spec, "--time=soon", "--sampler", "best"]) == 2
    err = capsys.readouterr().err
    assert "tuner: --time: 'soon' is not a time" in err
    assert "tuner: --sampler: 'best'" in err


@pytest.mark.parametrize(
    "arguments",
    [["fly"], ["run"], ["run", "a", "b"], ["run", "a.yaml", "--trials", "many"], ["show"], ["--what"], ["db"], []],
)
def test_unusable_arguments_are_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "tuner" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", [["show", "-x"], ["front", "--fast"], ["export", "-mine", "--to", "json"]])
def test_a_name_that_begins_with_a_dash_is_told_how_to_write_it(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(arguments) == 2
    assert f"tuner {arguments[0]} -- -" in capsys.readouterr().err
    assert run_command(["list", "-x"]) == 2
    assert "dash" not in capsys.readouterr().err


FULL = "tuner: the output cannot be written: No space left on device"


@pytest.mark.parametrize("arguments", [["devices"], ["devices", "--json"]])
def test_a_full_disk_behind_stdout_is_one_line(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert run_command(arguments) == 1
    assert capsys.readouterr().err == f"{FULL}\n"


def test_an_error_that_cannot_be_printed_either_ends_without_a_traceback(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tuner", "run", str(tmp_path / "none.yaml"), "--json"], stdout=full,
            stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[1:] == [FULL]
    assert "no such file" in done.stderr


def test_help_and_version_are_zero(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["-h"], ["run", "--help"], ["--version"], ["db", "migrate", "--help"]):
        assert run_command(arguments) == 0
        assert "tuner" in capsys.readouterr().out


def test_a_bug_is_one_line_and_the_way_to_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tuner.spec.read", lambda *_args, **_keywords: 1 // 0)
    assert run_command(["run", "x.yaml"]) == 1
    err = capsys.readouterr().err
    assert err.splitlines()[0].startswith("tuner: unexpected ZeroDivisionError")
    assert "--debug" in err
    assert "Traceback" not in err


def test_an_interrupt_anywhere_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_args: object, **_keywords: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tuner.spec.read", interrupted)
    assert run_command(["run", "x.yaml"]) == 130
    assert capsys.readouterr().err.strip() == "interrupted"


def test_the_first_ctrl_c_asks_and_the_second_interrupts() -> None:
    with stop_on_signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(5.0)
        assert stop.status == 130
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_termination_asks_too_and_the_first_request_gives_the_status() -> None:
    with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(5.0)
    assert stop.status == 143
    stop.set(130)
    assert stop.status == 143


def test_a_stop_that_nobody_asked_for_waits_its_time() -> None:
    stop = Stop()
    assert not stop.wait(0.01)
    assert stop.status == 0


def test_settings_name_the_store_and_the_folders(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("postgresql://me:secret@db/tuner\n")
    found = Settings.from_environment({"TUNER_DATABASE_URL_FILE": str(file), "TUNER_DATA_DIR": str(tmp_path)})
    assert found.store_url == "postgresql://me:secret@db/tuner"
    assert "secret" not in repr(found)
    assert found.data_dir == tmp_path
    embedded = Settings.from_environment({"TUNER_DATA_DIR": str(tmp_path), "TUNER_DATABASE_URL": ""})
    assert embedded.store_url == f"sqlite:///{tmp_path}/tightfit.db"
    assert Settings.from_environment({}).cache_dir.name == "tightfit"


def test_a_store_named_twice_or_by_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    for environment in (
        {"TUNER_DATABASE_URL": "sqlite://", "TUNER_DATABASE_URL_FILE": "x"},
        {"TUNER_DATABASE_URL_FILE": str(tmp_path / "missing")},
        {"TUNER_DATABASE_URL_FILE": str(tmp_path / "empty")},
        {"TUNER_DATABASE_URL_FILE": str(tmp_path)},
    ):
        with pytest.raises(StoreError):
            Settings.from_environment(environment)
