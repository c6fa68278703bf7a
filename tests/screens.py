"""The screens for tests: pages driven through the entry script, the real server, and a real browser."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from storage.database import Database

ROOT = Path(__file__).parents[1]
ENTRY = ROOT / "ui" / "app.py"
STORE_VARIABLES = ("TUNER_DATABASE_URL", "TUNER_DATABASE_URL_FILE", "TUNER_ALLOWED_FILE")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NO_BROWSER = """These tests need a real browser and found none of chromium, chromium-browser and google-chrome:
  - install it: `apt-get install chromium` (Debian, Ubuntu), `dnf install chromium` (Fedora)
  - or name one in TUNER_TEST_BROWSER"""
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
)  # fmt: skip


@contextmanager
def embedded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """The embedded store of a data folder, which this process's settings name."""
    data = folder / "data"
    data.mkdir()
    monkeypatch.setenv("TUNER_DATA_DIR", str(data))
    for name in STORE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    database = Database.open(f"sqlite:///{data / 'tightfit.db'}")
    database.prepare()
    try:
        yield database
    finally:
        database.close()


def page(
    name: str, *, secrets: Mapping[str, Any] | None = None, user: Mapping[str, Any] | None = None, **query: str
) -> AppTest:
    """A page, opened through the entry script."""
    at = AppTest.from_file(str(ENTRY), default_timeout=60)
    for key, value in (secrets or {}).items():
        at.secrets[key] = value
    if user is not None:
        at.user = dict(user)
    at.run()
    for key, value in query.items():
        at.query_params[key] = value
    at.switch_page(f"screens/{name}.py").run()
    assert not at.exception
    return at


def texts(at: AppTest) -> str:
    """Everything a page says in its own words."""
    said = [*at.title, *at.text, *at.error, *at.warning, *at.info, *at.success, *at.caption, *at.markdown, *at.code]
    return "\n".join(str(each.value) for each in said)


def button(at: AppTest, label: str) -> Any:
    """The first button of that label."""
    return next(each for each in at.button if each.label == label)


def control(at: AppTest, name: str) -> Any:
    """The control of that name, whichever of its versions is shown."""
    kinds = (at.text_input, at.text_area, at.selectbox, at.multiselect)
    found = [each for kind in kinds for each in kind if (each.key or "").rpartition(" ")[0] == name]
    assert len(found) == 1, name
    return found[0]


class Screens:
    """A running server: ``tuner ui`` with some options."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process, self.address = process, address

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def get(self, path: str, **headers: str) -> Any:
        """The answer to a request."""
        request = urllib.request.Request(f"{self.address}{path}", headers=headers)
        return urllib.request.urlopen(request, timeout=20)


@contextmanager
def serving(environment: Mapping[str, str], *options: str) -> Iterator[Screens]:
    """``tuner ui --port 0`` on the store that the environment names, from the moment it answers."""
    command = [sys.executable, "-m", "tuner", "ui", "--port", "0", *options]
    process = subprocess.Popen(command, env=dict(environment), stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "the screens are at" in line, line + process.stderr.read()
        yield Screens(process, line.rpartition(" ")[2].strip())
    finally:
        process.terminate()
        try:
            process.wait(20)
        finally:
            process.kill()
            process.wait()
            process.stderr.close()  # type: ignore[union-attr]


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Of a process on the embedded store of a folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TUNER_")}
    return kept | {"TUNER_DATA_DIR": str(folder / "data"), "TUNER_CACHE_DIR": str(folder / "cache")} | more


def find_browser() -> str:
    """The system's Chromium. Without one the test fails: it never passes unseen."""
    named = os.environ.get("TUNER_TEST_BROWSER")
    found = named or next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.fail(NO_BROWSER, pytrace=False)
    return found


@contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=find_browser(), args=list(FLAGS))
        try:
            yield made
        finally:
            made.close()


def free_test_port() -> int:
    """A port that is free now."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
