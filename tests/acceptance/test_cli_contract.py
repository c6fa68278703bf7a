"""The command line as outsiders see it: real processes, exit statuses, streams, other people's folders beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tuner.documents import DEVICE, missing

SCRIPT = Path(sys.executable).with_name("tuner")
WAYS = pytest.mark.parametrize("way", [[sys.executable, "-m", "tuner"], [str(SCRIPT)]], ids=["module", "script"])
SPEC = """\
study: mine
objective: {kind: "mine:Tiny"}
global_batch_size: 8
search:
  micro_batch_size: [1, 2]
"""


def command(way: Sequence[str], *arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in a folder that also holds its store."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("TUNER_", "PYTHONPATH"))}
    homes = {"TUNER_DATA_DIR": str(folder / ".data"), "TUNER_CACHE_DIR": str(folder / ".cache")}
    return subprocess.run(
        [*way, *arguments],
        cwd=folder,
        env={**variables, **homes, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@WAYS
def test_help_answers_fast_and_without_the_heavy_libraries(way: list[str], tmp_path: Path) -> None:
    begun = time.monotonic()
    ended = command(way, "--help", folder=tmp_path)
    sys.stdout.write(f"--help took {time.monotonic() - begun:.2f} s\n")
    assert ended.returncode == 0
    for name in ("run", "list", "show", "front", "devices", "db"):
        assert name in ended.stdout
    assert ended.stderr == ""


def test_help_loads_no_heavy_library(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['tuner', '--help']\n"
        "from tuner.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = ('torch', 'optuna', 'sqlalchemy', 'numpy', 'pydantic', 'rich')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    ended = command([sys.executable, "-c", code], folder=tmp_path)
    assert ended.stdout.splitlines()[-1] == "[]"


@WAYS
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SPEC.replace("[1, 2]", "[1, 3]"), "study.yaml:5: search.micro_batch_size[1]"),
        (SPEC.replace("  micro", "\tmicro"), "study.yaml:5: a tab"),
        (SPEC.replace("study:", "stduy:"), "Did you mean 'study'?"),
        ("", "nothing in it"),
    ],
)
def test_a_bad_spec_is_refused_in_one_line_each(way: list[str], text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(text)
    ended = command(way, "run", "study.yaml", folder=tmp_path)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_missing_spec_is_refused_with_the_place_that_was_looked_at(tmp_path: Path) -> None:
    ended = command([str(SCRIPT)], "run", "nowhere.yaml", "--json", folder=tmp_path)
    assert ended.returncode == 2
    assert str(tmp_path / "nowhere.yaml") in ended.stderr
    assert json.loads(ended.stdout)["error"]["problems"][0]["reason"] == "no such file"


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    ended = command([str(SCRIPT)], "run", "nowhere.yaml", "--debug", folder=tmp_path)
    assert ended.returncode == 2
    assert "Traceback" in ended.stderr


@pytest.fixture
def other_peoples_folder(tmp_path: Path) -> Path:
    """A working folder whose modules have our packages' and libraries' names, and end the process when imported."""
    trap = "raise SystemExit('a module of the working folder was imported: ' + __name__)\n"
    for name in ("ui", "click", "rich", "sqlalchemy", "secrets", "platformdirs"):
        (tmp_path / f"{name}.py").write_text(trap)
    for package in ("storage", "objectives", "tests", "optuna"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(trap)
    (tmp_path / "benchmarks").mkdir()
    return tmp_path


@WAYS
def test_everything_runs_beside_a_users_own_ui_storage_and_tests(way: list[str], other_peoples_folder: Path) -> None:
    for arguments in (["--help"], ["list", "--json"], ["devices", "--json"], ["db", "check"]):
        ended = command(way, *arguments, folder=other_peoples_folder)
        assert "was imported" not in ended.stderr + ended.stdout
        assert ended.returncode == 0, ended.stderr


@WAYS
def test_a_folder_without_init_named_like_our_package_changes_nothing(way: list[str], tmp_path: Path) -> None:
    for package in ("storage", "objectives", "ui", "tests"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "records.py").write_text("raise SystemExit('theirs')\n")
    ended = command(way, "list", "--json", folder=tmp_path, PYTHONPATH=str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {"studies": []}


@pytest.mark.parametrize(
    ("arguments", "key"),
    [(["list"], "studies"), (["devices"], "devices"), (["db", "migrate"], None), (["db", "check"], None)],
)
def test_json_is_one_document_on_stdout_and_nothing_else_there(
    arguments: list[str], key: str | None, tmp_path: Path
) -> None:
    command([str(SCRIPT)], "db", "migrate", folder=tmp_path)
    ended = command([str(SCRIPT)], *arguments, "--json", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert len(ended.stdout.splitlines()) == 1
    assert isinstance(document, dict)
    assert key is None or key in document
    plain = command([str(SCRIPT)], *arguments, folder=tmp_path)
    assert plain.returncode == 0
    assert "\x1b" not in plain.stdout


def test_devices_show_this_machine(tmp_path: Path) -> None:
    devices = json.loads(command([str(SCRIPT)], "devices", "--json", folder=tmp_path).stdout)["devices"]
    assert [missing(device, DEVICE) for device in devices] == [[]] * len(devices)
    assert devices[-1]["kind"] == "cpu"
    assert devices[-1]["total_memory_bytes"] > 2**28


@pytest.mark.parametrize("name", ["show", "front"])
def test_a_study_that_is_not_there_is_two(name: str, tmp_path: Path) -> None:
    ended = command([str(SCRIPT)], name, "no such study", "--json", folder=tmp_path)
    assert ended.returncode == 2
    assert "no such study" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert json.loads(ended.stdout)["error"]["exit_status"] == 2


def test_a_store_that_cannot_be_reached_is_one_line_and_one(tmp_path: Path) -> None:
    url = "postgresql://nobody:hidden@127.0.0.1:1/none"
    ended = command([str(SCRIPT)], "list", folder=tmp_path, TUNER_DATABASE_URL=url)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "hidden" not in ended.stderr


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    ended = command(["bash", "-c", f"set -o pipefail; {SCRIPT} devices | true"], folder=tmp_path)
    assert ended.returncode == 0
    assert ended.stderr == ""


def test_a_terminal_without_unicode_shows_what_it_can(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(SPEC.replace("mine\n", "'mine\u2026 \u65e5'\n").replace("[1, 2]", "[3]"))
    ended = command(
        [str(SCRIPT)], "run", "study.yaml", folder=tmp_path, LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii"
    )
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
