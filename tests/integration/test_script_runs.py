"""Unmodified scripts as real processes: seen, read back, stopped, and judged by how they end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from children import finish, lives, pids_in, wait_for
from script_runs import TINY, log_of, run_script

from objectives.contract import ObjectiveReference
from objectives.script.following import START
from objectives.trial.protocol import RunRequest
from tuner.work.launcher import Launcher


@pytest.mark.case("B07", "C06")
def test_an_unmodified_loop_is_measured_read_back_and_left_cleanly(tmp_path: Path) -> None:
    command = [*TINY, "{precision}", "--workers", "{loader_workers}", "--left", str(tmp_path / "left")]
    end = run_script(
        tmp_path,
        command,
        settings={"words": {"precision": {"bf16-mixed": "--bf16", "fp32": ""}}},
        config={"micro_batch_size": 4, "accumulation_steps": 2, "precision": "bf16-mixed", "loader_workers": 1},
        global_batch_size=8,
        memory_limit_bytes=1 << 30,
    )
    assert end.verdict.outcome == "completed", log_of(tmp_path)
    assert end.applied["differences"] == []
    found = end.applied["config"]
    assert (found["micro_batch_size"], found["accumulation_steps"]) == (4, 2)
    assert (found["precision"], found["loader_workers"]) == ("bf16-mixed", 1)
    measured = end.measurement
    assert measured["throughput"] == pytest.approx(8 / (sum(measured["step_seconds"]) / measured["blocks"]))
    assert measured["step_seconds"][0] >= 0.02  # two micro-steps of 10 ms each
    assert 0 < measured["memory"]["peak_memory_bytes"] < 1 << 30
    assert measured["hook_share"] < 0.2  # a tiny step on a busy machine; the benchmark holds it to 1 %
    assert (tmp_path / "left").read_text().split("\n")[:2] == ["finally", "exit handler"]
    assert end.evidence["orphans_killed"] == 0


@pytest.mark.case("B07", "B13")
def test_what_the_script_does_not_do_is_not_applied(tmp_path: Path) -> None:
    """The script ignores what it was told: accumulation is hard-wired in it."""
    end = run_script(tmp_path, ["python", "tiny.py", "--batch", "{micro_batch_size}"], config={"accumulation_steps": 4})
    assert (end.verdict.outcome, end.verdict.cause) == ("unsupported", "not_applied")
    assert "accumulation_steps: asked 4, found 1" in end.verdict.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "config", "words"),
    [
        (["{activation_checkpointing}"], {"activation_checkpointing": "none"}, {"none": "--checkpoint", "full": ""}),
        (["--workers=1", "{loader_workers}"], {"loader_workers": 0}, {"0": "--seconds=0.01"}),
    ],
)
def test_other_knobs_are_read_back_as_well(
    tmp_path: Path, arguments: list[str], config: dict[str, object], words: dict[str, str]
) -> None:
    (knob,) = config
    end = run_script(tmp_path, [*TINY, *arguments], config=config, settings={"words": {knob: words}})
    assert end.verdict.cause == "not_applied"
    assert f"{knob}: asked" in end.verdict.text


@pytest.mark.case("B04")
def test_a_process_without_an_optimizer_step_is_told_the_two_lines_that_help(tmp_path: Path) -> None:
    end = run_script(tmp_path, ["python", "-c", "print('nothing to train')"])
    assert (end.verdict.outcome, end.verdict.cause) == ("crashed", "no_step")
    assert "tuner.report_step" in end.verdict.advice


def test_reported_steps_are_measured(tmp_path: Path) -> None:
    end = run_script(tmp_path, ["python", "unseen.py", "--report"], config={"accumulation_steps": 2})
    assert end.verdict.outcome == "completed", log_of(tmp_path)
    assert end.measurement["throughput"] == pytest.approx(4 / 0.011, rel=0.5)


@pytest.mark.case("A20", "D02")
def test_the_cap_is_real_in_the_script_and_its_refusal_is_the_device_s(tmp_path: Path) -> None:
    end = run_script(tmp_path, [*TINY, "--fault", "memory", "--at", "1"], memory_limit_bytes=256 << 20)
    assert (end.verdict.outcome, end.verdict.cause) == ("device_oom", "cap"), log_of(tmp_path)


@pytest.mark.parametrize(
    ("fault", "outcome", "word"),
    [
        ("nan", "numerical", "loss"),
        pytest.param("raise", "crashed", "the data is broken", marks=pytest.mark.slow),
        pytest.param("exit", "crashed", "exit status 3", marks=pytest.mark.slow),
        pytest.param("segv", "crashed", "SIGSEGV", marks=pytest.mark.slow),
        pytest.param("skip", "numerical", "skipped", marks=pytest.mark.slow),
    ],
)
@pytest.mark.case("A36", "C01")
def test_how_a_script_ends_names_the_run(tmp_path: Path, fault: str, outcome: str, word: str) -> None:
    end = run_script(tmp_path, [*TINY, "--fault", fault])
    assert end.verdict.outcome == outcome, (end.verdict, log_of(tmp_path))
    assert word in end.verdict.text


def test_a_program_that_is_not_there_says_so(tmp_path: Path) -> None:
    end = run_script(tmp_path, ["no-such-program", "{micro_batch_size}"])
    assert end.verdict.outcome == "crashed"
    assert "cannot start 'no-such-program'" in log_of(tmp_path)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["no-such-program", "{micro_batch_size}"], "no such program"),
        (["python", "nowhere.py", "{micro_batch_size}"], r"nowhere\.py, and there is no such file"),
        (["python", "tiny.py", "{patched_file}"], "to patch cannot be read"),
    ],
)
def test_a_dry_look_finds_what_cannot_start(tmp_path: Path, command: list[str], words: str) -> None:
    settings = {"patch": {"file": "nowhere.yaml", "values": {"a": 1}}} if "{patched_file}" in command else {}
    end = run_script(tmp_path, command, purpose="capability", config={}, settings=settings)
    record = end.ending.chain[0]
    assert record.cls == "objectives.contract.ObjectiveError"
    assert re.search(words, record.text)


def test_a_dry_look_says_which_knobs_the_template_makes_legal(tmp_path: Path) -> None:
    command = [*TINY, "{activation_checkpointing}"]
    end = run_script(tmp_path, command, purpose="capability", config={})
    facts = end.answers[-1]["facts"]
    assert end.verdict.outcome == "completed"
    assert facts["workload_methods"] == ["checkpoint_blocks"]
    assert facts["cores"] >= 1


@pytest.mark.case("A19", "D11", "F01")
@pytest.mark.parametrize("fault", ["oom", pytest.param("kill", marks=pytest.mark.slow)])
def test_the_first_rank_to_fail_names_the_outcome_and_the_others_are_stopped(tmp_path: Path, fault: str) -> None:
    """Rank 0 waits for rank 1 for an hour, and the launcher for rank 0."""
    begun = time.monotonic()
    end = run_script(tmp_path, ["python", "two_ranks.py", fault], world_size=2, global_batch_size=4)
    assert time.monotonic() - begun < 60
    expected = {"oom": ("device_oom", "capacity"), "kill": ("crashed", None)}[fault]
    assert (end.verdict.outcome, end.verdict.cause) == expected, (end.verdict, log_of(tmp_path))


@pytest.mark.slow
@pytest.mark.case("D11", "B02", "B12")
def test_two_ranks_are_measured_together_and_each_by_itself(tmp_path: Path) -> None:
    end = run_script(tmp_path, ["python", "two_ranks.py"], world_size=2, global_batch_size=4)
    assert end.verdict.outcome == "completed", log_of(tmp_path)
    measured = end.measurement
    assert measured["throughput"] * measured["median_step_seconds"] == pytest.approx(4, rel=0.2)
    fast, slow = sorted(measured["ranks"], key=lambda one: one["rank"])
    assert fast["rank_wait_share"] > slow["rank_wait_share"]  # rank 1 takes 10 ms longer for each step
    assert {one["peak_memory_bytes"] is not None for one in (fast, slow)} == {True}


def test_another_sitecustomize_still_runs_and_the_script_s_path_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os; os.environ['CHAINED'] = 'yes'\n")
    (tmp_path / "look.py").write_text(
        "import importlib.util, os, sys\n"
        "print('chained', os.environ.get('CHAINED'), sys.modules['sitecustomize'].__file__)\n"
        "print('ours', [entry for entry in sys.path if 'objectives' in entry])\n"
        "importlib.util.find_spec('torch')\n"  # transformers asks so before anything imports it
        "assert any('_tightfit_watch' in type(finder).__module__ for finder in sys.meta_path), 'no longer waiting'\n"
    )
    command = ["python", "look.py"]
    path = {"PYTHONPATH": str(tmp_path)}
    before = os.environ.get("PYTHONPATH")
    os.environ.update(path)
    try:
        end = run_script(tmp_path, command, scripts=tmp_path)
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
    assert end.verdict.cause == "no_step", log_of(tmp_path)
    said = log_of(tmp_path)
    assert f"chained yes {tmp_path / 'sitecustomize.py'}" in said
    assert "ours []" in said


@pytest.mark.case("A21", "G01")
def test_nothing_of_a_killed_run_survives(tmp_path: Path) -> None:
    """The script, and what it has put into sessions of its own."""
    (tmp_path / "sleeps.py").write_text(
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(600)\n"
    )
    settings = {"command": ["python", "sleeps.py"], "environment": {}}
    reference = ObjectiveReference(kind="script", settings=settings, folder=str(tmp_path))
    asked = RunRequest(run="killed-script", purpose="search", objective=reference)
    with Launcher() as launcher:
        process = launcher.start(asked, tmp_path / "log")
        pids = wait_for(lambda: len(pids_in(tmp_path / "pids")) == 2 and pids_in(tmp_path / "pids"), "it sleeps")
        process.kill("cancelled")
        finish(process)
        assert not any(lives(pid) for pid in pids)


def test_a_script_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Where even the template is gone, the kernel ends it."""
    code = (
        "import os, subprocess, sys, time\n"
        f"command = [sys.executable, '-I', '-S', {str(START)!r}, str(os.getpid()), 'sleep', '600']\n"
        "print(subprocess.Popen(command).pid, flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        wait_for(lambda: Path(f"/proc/{pid}/comm").read_text().strip() == "sleep", "it has become the command")
        parent.kill()
        wait_for(lambda: not lives(pid), "it has died as well")
