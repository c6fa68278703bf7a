"""Counters of the kernel's kills, memory from outside, and the environment a run may see."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from objectives.trial import process_table
from tuner.work import processes
from tuner.work.run_memory import Peaks, read_memory


def machine(folder, *, cgroup, files):
    proc, groups = folder / "proc", folder / "cgroup"
    for name, text in {"proc/vmstat": "pgfault 5\noom_kill 7\n", "proc/self/cgroup": cgroup, **files}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return processes.kernel_kills(groups, proc)


@pytest.mark.case("A21")
def test_kills_by_machine_and_control_group(tmp_path):
    second = {"cgroup/job/memory.events": "low 0\noom 1\noom_kill 3\n"}
    assert machine(tmp_path, cgroup="0::/job\n", files=second) == {"machine": 7, "group": 3}


def test_kills_of_the_older_control_groups(tmp_path):
    older = {"cgroup/memory/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"}
    cgroup = "4:memory:/job\n1:cpu:/\n0::/\n"
    assert machine(tmp_path, cgroup=cgroup, files=older) == {"machine": 7, "group_v1": 2}


def test_no_counter_is_not_zero(tmp_path):
    assert processes.kernel_kills(tmp_path, tmp_path) == {}
    assert processes.kills_rose({}, {"machine": 1}) is None


def test_a_rise_in_any_counter():
    assert processes.kills_rose({"machine": 1, "group": 0}, {"machine": 1, "group": 1}) is True
    assert processes.kills_rose({"machine": 1, "group": 0}, {"machine": 1, "group": 0}) is False


@pytest.mark.case("G06")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TUNER_DATABASE_URL", "sqlite:///x"),
        ("TUNER_DATABASE_URL_FILE", "/run/secret"),
        ("DATABASE_URL", "anything"),
        ("STORE", "postgresql+psycopg2://user:hush@host/db"),
        ("OTHER", " MYSQL://u:p@h/d"),
        ("PGPASSWORD", "hush"),
        ("POSTGRES_PASSWORD", "hush"),
    ],
)
def test_nothing_that_opens_a_database_reaches_a_run(name, value):
    assert name not in processes.template_environment({name: value}, {})


@pytest.mark.case("E04")
def test_the_rest_does_and_threads_are_one_until_the_child_says_otherwise():
    worker = {"PATH": "/bin", "HF_TOKEN": "t", "OMP_NUM_THREADS": "64", "TIGHTFIT_RUN": "outer"}
    made = processes.template_environment(worker, {"MALLOC_ARENA_MAX": "2", "TOKENIZERS_PARALLELISM": "true"})
    assert (made["PATH"], made["HF_TOKEN"], made["OMP_NUM_THREADS"]) == ("/bin", "t", "1")
    assert (made["MALLOC_ARENA_MAX"], made["TOKENIZERS_PARALLELISM"]) == ("2", "true")
    assert made["TIGHTFIT_RUN"] == process_table.placeholder()


def test_a_bare_checkout_is_put_on_the_path_and_an_installed_one_is_not(monkeypatch):
    root = str(Path(process_table.__file__).parents[2])
    monkeypatch.setattr(sys, "path", [root, "/lib"])
    assert processes.template_environment({"PYTHONPATH": "/mine"}, {})["PYTHONPATH"] == f"{root}{os.pathsep}/mine"
    monkeypatch.setattr(sys, "path", ["/lib"])
    assert "PYTHONPATH" not in processes.template_environment({}, {})


def test_memory_of_a_process_and_of_none():
    memory = read_memory(os.getpid())
    assert memory is not None
    assert memory.data_bytes > 1_000_000
    assert memory.anonymous_bytes > 1_000_000
    assert read_memory(2**22 + 1) is None


def test_peaks_look_at_the_whole_tree(monkeypatch):
    monkeypatch.setattr("tuner.work.run_memory.FIRST_TREE_SECONDS", 0.0)
    with subprocess.Popen(["sleep", "60"]) as below:
        peaks = Peaks(os.getpid())
        peaks.look()
        assert {os.getpid(), below.pid} <= {process.pid for process in peaks.seen}
        assert peaks.tree_pss_bytes is not None
        assert peaks.tree_pss_bytes > 1_000_000
        below.kill()
