"""What the README and the guide tell people to write and type really works."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tuner import spec as specs
from tuner.work.allowed import Allowed

ROOT = Path(__file__).parent.parent.parent
PAGES = ("README.md", "docs/guide.md")
SERVICE = "docs/service.md"


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_every_spec_shown_is_a_spec(page: str) -> None:
    shown = blocks(page, "yaml")
    assert shown
    for text in shown:
        assert specs.read(text).study == "my-model"


@pytest.mark.parametrize("page", [*PAGES, SERVICE])
def test_every_tuner_command_shown_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    commands = set(re.findall(r"^tuner ([a-z]+(?: [a-z]+(?=\n))?)", text, flags=re.MULTILINE))
    assert commands
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "tuner", *command.split(), "--help"], capture_output=True, check=False, timeout=60
        )
        assert done.returncode == 0, command


@pytest.mark.parametrize("page", [*PAGES, SERVICE, "docs/architecture.md"])
def test_every_file_linked_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text)]
    missing = [link for link in links if link and not ((ROOT / page).parent / link).exists()]
    assert missing == []


def test_the_examples_are_valid_specs() -> None:
    for file in ("quickstart.yaml", "image_classifier.yaml", "own_objective/forecaster.yaml"):
        assert specs.read(ROOT / "examples" / file).search


def test_the_compose_file_gives_a_database_on_loopback_with_its_password_from_a_file() -> None:
    compose = YAML(typ="safe").load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    postgres = compose["services"]["postgres"]
    assert all(port.startswith("127.0.0.1:") for port in postgres["ports"])
    assert postgres["environment"]["POSTGRES_PASSWORD_FILE"].startswith("/run/secrets/")
    assert "pg_isready" in postgres["healthcheck"]["test"]
    assert re.fullmatch(r"postgres:\d+\.\d+-\w+", postgres["image"])


def test_the_compose_file_migrates_once_and_starts_workers_without_root_on_loopback() -> None:
    compose = YAML(typ="safe").load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    services = compose["services"]
    assert services["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    worker = services["worker"]
    assert worker["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert worker["command"][:4] == ["tuner", "worker", "--devices", "all"]
    assert (worker["init"], worker["shm_size"]) == (True, "8gb")
    assert not str(worker["user"]).startswith("0")
    assert "/healthz" in " ".join(worker["healthcheck"]["test"])
    assert all(port.startswith("127.0.0.1:") for port in worker["ports"])
    password = [name for each in services.values() for name in each.get("environment", {}) if "PASSWORD" in name]
    assert password == ["POSTGRES_PASSWORD_FILE"]


def test_the_image_is_pinned_and_runs_without_root() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(r"FROM python:\d+\.\d+\.\d+-slim-\w+", next(line for line in lines if line.startswith("FROM")))
    assert "USER tuner" in lines
    for line in lines:
        if line.startswith("COPY "):
            *sources, _ = line.split()[1:]
            assert all((ROOT / source).exists() for source in sources), line


def test_the_systemd_unit_drains_and_keeps_the_url_out_of_the_environment() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read(ROOT / "examples/systemd/tightfit-worker.service", encoding="utf-8")
    service = unit["Service"]
    assert (service["KillMode"], service["Restart"]) == ("mixed", "always")
    assert "tuner worker --devices all" in service["ExecStart"]
    text = (ROOT / "examples/systemd/tightfit-worker.service").read_text(encoding="utf-8")
    assert "TUNER_DATABASE_URL=" not in text


def test_the_example_of_an_operators_list_is_one() -> None:
    listed = Allowed.read(ROOT / "examples/container/allowed.yaml")
    assert listed.objectives == ("built-in",)


def quickstart(folder: Path, *arguments: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "tuner", "run", str(ROOT / "examples/quickstart.yaml"), "--json", *arguments],
        env=os.environ | {"TUNER_DATA_DIR": str(folder / "data"), "TUNER_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_the_quickstart_answers_with_a_confirmed_winner(tmp_path: Path) -> None:
    answer = quickstart(tmp_path)
    counts, best = answer["counts"], answer["best"]
    assert isinstance(counts, dict)
    assert isinstance(best, dict)
    assert sum(counts.values()) >= 12
    assert best["confirmed"] is True
    assert best["config"]["micro_batch_size"] * best["config"]["accumulation_steps"] == 8


def test_the_lock_names_packages_and_versions_only() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    named = [line for line in lines if not line.startswith("#")]
    assert [line for line in named if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)] == []
    assert "torch==2.13.0" in named
