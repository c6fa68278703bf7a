"""Whole studies with real children on a model of known memory and speed: what is found, refused, kept and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tuner import api
from tuner.errors import SpecError, StudyError, TightfitError

WORKLOADS = Path(__file__).parent.parent / "workloads"


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TUNER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TUNER_DATABASE_URL", raising=False)


def spec(folder: Path, **changes: Any) -> Path:
    """A spec file beside a copy of the workload module, as a user would have it."""
    settings = changes.pop("settings", {})
    limits = {"trials": 4, "window": "0.3s", "trial_time": "20s", "memory": "2GiB"} | changes.pop("limits", {})
    made = {
        "study": "capacity",
        "objective": {"kind": "tests_capacity:Capacity", "settings": settings},
        "global_batch_size": 8,
        "baseline": {"micro_batch_size": 1},
        "search": {"micro_batch_size": [1, 2, 4, 8]},
        "limits": limits,
    } | changes
    (folder / "tests_capacity.py").write_bytes((WORKLOADS / "tests_capacity.py").read_bytes())
    path = folder / "spec.yaml"
    path.write_text(json.dumps(made), encoding="utf-8")  # JSON is YAML
    return path


def test_a_study_finds_and_confirms_the_fastest(tmp_path: Path) -> None:
    answer = api.run(spec(tmp_path)).to_json()
    assert answer["status"] == "finished"
    assert answer["best"]["config"]["micro_batch_size"] == 8
    assert answer["best"]["confirmed"] is True
    assert answer["baseline"]["number"] == 0
    assert answer["speedup_over_baseline"] > 2
    assert {
        trial["config"]["micro_batch_size"] * trial["config"]["accumulation_steps"] for trial in answer["front"]
    } == {8}
    assert answer == api.show("capacity").to_json()


@pytest.mark.case("B08", "G15", "G20", "D03")
def test_misfits_end_as_out_of_memory_under_the_real_cap_and_the_rest_goes_on(tmp_path: Path) -> None:
    misfits = {"settings": {"mib_per_sample": 60}, "limits": {"memory": "200MiB"}}
    answer = api.run(spec(tmp_path, sampler="grid", **misfits)).to_json()  # `auto` predicts them and launches none
    assert answer["counts"]["completed"] == 2
    assert answer["counts"]["device_oom"] == 2
    assert answer["best"]["config"]["micro_batch_size"] == 2
    causes = {trial.cause for trial in _trials("capacity") if trial.outcome == "device_oom"}
    assert causes == {"cap"}


@pytest.mark.case("A36", "G26")
def test_nothing_feasible_ends_with_the_smallest_and_the_reason(tmp_path: Path) -> None:
    answer = api.run(spec(tmp_path, settings={"mib_per_sample": 400}, limits={"memory": "200MiB"})).to_json()
    assert answer["status"] == "failed"
    assert answer["best"] is None
    assert "smallest tried was trial 0 (micro_batch_size=1" in answer["stop_reason"]
    assert "alloc" in answer["stop_reason"]


@pytest.mark.case("A27", "G26")
@pytest.mark.parametrize("fault", ["crash", "assert"])
def test_one_reason_for_every_failure_ends_the_study_early(tmp_path: Path, fault: str) -> None:
    made = spec(tmp_path, settings={"faults": {"exact": f"{fault}:4"}}, limits={"trials": 50})
    answer = api.run(made).to_json()
    assert answer["status"] == "failed"
    assert sum(answer["counts"].values()) <= 5
    assert ("is broken" if fault == "crash" else "device-side assert") in answer["stop_reason"]


@pytest.mark.case("A36", "G20")
def test_a_segmentation_fault_costs_its_configuration_alone(tmp_path: Path) -> None:
    answer = api.run(spec(tmp_path, settings={"faults": {"samples=8": "segv"}})).to_json()
    assert answer["counts"]["crashed"] == 1
    assert answer["best"]["config"]["micro_batch_size"] == 4


@pytest.mark.case("E04", "G18")
def test_a_hang_ends_at_the_trial_time(tmp_path: Path) -> None:
    made = spec(tmp_path, settings={"faults": {"samples=4": "hang"}}, limits={"trial_time": "10s"})
    answer = api.run(made).to_json()
    assert answer["counts"]["timeout"] == 1
    assert answer["best"]["config"]["micro_batch_size"] == 8


@pytest.mark.case("D01", "D02", "G25")
def test_a_late_out_of_memory_in_the_confirmation_demotes(tmp_path: Path) -> None:
    """Micro-batch 8 makes some 30 micro-steps in a search run, and 50 in the confirmation's twice as long window."""
    made = spec(tmp_path, settings={"faults": {"samples=8": "oom:44"}}, limits={"window": "1s"})
    answer = api.run(made).to_json()
    assert answer["best"]["config"]["micro_batch_size"] == 4
    assert "confirmation" in str(answer["demoted"])


@pytest.mark.case("C03")
def test_a_fast_configuration_that_cannot_train_is_not_chosen(tmp_path: Path) -> None:
    made = spec(
        tmp_path,
        settings={"faults": {"mixed": "nan:5"}},
        search={"micro_batch_size": [1, 8], "precision": ["fp32", "bf16-mixed"]},
    )
    answer = api.run(made).to_json()
    assert answer["best"]["config"]["precision"] == "fp32"


def test_a_baseline_that_cannot_run_here_says_so_and_the_study_goes_on(tmp_path: Path) -> None:
    answer = api.run(spec(tmp_path, baseline={"micro_batch_size": 1, "precision": "tf32"})).to_json()
    assert answer["baseline"]["outcome"] == "unsupported"
    assert answer["best"] is not None
    assert answer["speedup_over_baseline"] is None
    assert answer["speedup_reason"]


@pytest.mark.case("B14", "G11")
def test_the_same_name_for_another_study_is_refused_with_the_difference(tmp_path: Path) -> None:
    api.run(spec(tmp_path, limits={"trials": 1}))
    with pytest.raises(StudyError, match=r"global_batch_size: 8 in the store, 16 in the spec"):
        api.run(spec(tmp_path, global_batch_size=16))
    answer = api.run(spec(tmp_path, limits={"trials": 2}))  # limits may change
    assert sum(answer.to_json()["counts"].values()) == 2


def test_an_objective_that_is_not_there_is_the_specs_fault(tmp_path: Path) -> None:
    made = spec(tmp_path, objective={"kind": "tests_capacity:Nothing"})
    with pytest.raises(SpecError, match="has no 'Nothing'"):
        api.run(made)
    mended = api.run(spec(tmp_path, limits={"trials": 1})).to_json()  # nothing was measured: the name is not burnt
    assert mended["counts"] == {"completed": 1}


def test_an_objective_that_fails_to_build_ends_the_study_with_its_words(tmp_path: Path) -> None:
    with pytest.raises(TightfitError, match="could not convert"):
        api.run(spec(tmp_path, settings={"mib_per_sample": "many"}))
    assert api.show("capacity").to_json()["status"] == "failed"


def command(spec_file: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tuner", "run", str(spec_file), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": ""},
    )


def wait_for_trials(count: int, seconds: float = 60) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            if len(_trials("capacity")) >= count:
                return
        except (StudyError, TightfitError):
            pass
        time.sleep(0.1)
    raise AssertionError(f"no {count} trials within {seconds} s")


def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(tmp_path: Path) -> None:
    made = spec(tmp_path, settings={"floor_seconds": 0.05}, limits={"window": "1s"})
    running = command(made)
    wait_for_trials(2)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 130, err
    stopped = json.loads(out)
    assert stopped["status"] == "paused"
    before = {trial.number: trial.outcome for trial in _trials("capacity")}
    answer = api.run(made).to_json()
    assert answer["status"] == "finished"
    after = {trial.number: trial.outcome for trial in _trials("capacity")}
    assert all(after[number] == outcome for number, outcome in before.items() if outcome is not None)
    assert len({trial.config_key for trial in _trials("capacity")}) == len(after) == 4


@pytest.mark.case("G01", "G02")
def test_kill_nine_loses_nothing_that_was_done(tmp_path: Path) -> None:
    made = spec(tmp_path, settings={"floor_seconds": 0.05}, limits={"window": "1s"})
    running = command(made)
    wait_for_trials(2)
    running.kill()
    running.communicate(timeout=30)
    answer = api.run(made).to_json()
    assert answer["status"] == "finished"
    assert sorted(answer["counts"]) == ["completed"]
    assert sum(answer["counts"].values()) == 4


def _trials(name: str) -> tuple[Any, ...]:
    from storage import studies, trials
    from storage.database import Database
    from tuner.settings import Settings

    database = Database.open(Settings.from_environment().store_url)
    try:
        database.prepare()
        study = studies.find(database, name)
        return () if study is None else trials.list_of(database, study.id)
    finally:
        database.close()


@pytest.mark.case("G27")
def test_a_raised_memory_limit_lets_what_did_not_fit_be_tried_again(tmp_path: Path) -> None:
    settings = {"mib_per_sample": 60}
    first = api.run(spec(tmp_path, settings=settings, limits={"memory": "200MiB"})).to_json()
    assert first["best"]["config"]["micro_batch_size"] == 2
    second = api.run(spec(tmp_path, settings=settings, limits={"memory": "1GiB", "trials": 8})).to_json()
    assert second["memory_limit_bytes"] == 2**30
    assert second["best"]["config"]["micro_batch_size"] == 8
