"""verify, soak and profile on a finished study in a real store, with real children: what is kept, and what stays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from storage import runs, studies, trials
from tuner import api, examining
from tuner.cli.outcome import run_command
from tuner.documents import PROFILED, SOAKED, VERIFIED, missing
from tuner.errors import StudyError, TightfitError
from tuner.opening import opened_store

PLANTED = Path(__file__).parent.parent / "workloads" / "planted"


def studied(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A finished study of two micro-batch sizes."""
    monkeypatch.setenv("TUNER_DATA_DIR", str(folder / "data"))
    monkeypatch.setenv("TUNER_CACHE_DIR", str(folder / "cache"))
    monkeypatch.delenv("TUNER_DATABASE_URL", raising=False)
    for file in PLANTED.glob("*.py"):
        shutil.copy(file, folder)
    made = {
        "study": "planted", "objective": {"kind": kind}, "global_batch_size": 8, "baseline": {"micro_batch_size": 2},
        "search": {"micro_batch_size": [2, 4]}, "sampler": "grid",
        "limits": {"trials": 2, "window": "0.2s", "trial_time": "30s", "memory": "2GiB"},
    }  # fmt: skip
    (folder / "spec.yaml").write_text(json.dumps(made), encoding="utf-8")
    assert api.run(folder / "spec.yaml").to_json()["status"] == "finished"


def test_longer_runs_are_kept_and_change_no_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    studied(tmp_path, monkeypatch, "planted_accumulation:Right")
    before = api.show("planted").to_json()
    with opened_store() as database:
        study = studies.find(database, "planted")
        assert study is not None
        rows = trials.list_of(database, study.id)

    assert run_command(["verify", "planted", "--json"]) == 0
    verified = json.loads(capsys.readouterr().out)
    assert not missing(verified, VERIFIED)
    assert verified["verdict"] == "fine"
    assert 0 < verified["gradient"]["distance"] < 1e-6

    profiled = examining.profile("planted", trial=0)
    assert not missing(profiled, PROFILED)
    (trace,) = profiled["files"]
    assert Path(trace["path"]).parent == tmp_path / "data" / "artifacts" / str(study.id) / profiled["run"]
    assert Path(trace["path"]).stat().st_size == trace["bytes"]

    with pytest.raises(StudyError, match="no trial 9: its trials are 0 to 1"):
        examining.profile("planted", trial=9)
    with pytest.raises(TightfitError, match="Nsight Systems looks at NVIDIA GPUs"):
        examining.profile("planted", tool="nsys")

    soaked = examining.soak("planted", minutes=2 / 60)
    assert not missing(soaked, SOAKED)
    assert soaked["leak"] is False

    with opened_store() as database:
        assert trials.list_of(database, study.id) == rows
        kept = {run.purpose: run for run in runs.list_of(database, study_id=study.id)}
        assert {kept[name].outcome for name in ("verify", "soak", "profile")} == {"completed"}
        assert kept["profile"].throughput is None
        assert kept["profile"].measurement["files"] == [trace["path"]]
        assert kept["soak"].measurement["growth"] == soaked["growth"]
    after = api.show("planted").to_json()
    assert after == before
    assert any("Soaked for" in note for note in api.export("planted", "json")["notes"])


@pytest.mark.slow
def test_a_planted_fault_is_found_in_a_study_and_its_exit_status_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    studied(tmp_path, monkeypatch, "planted_accumulation:MeanTimesSamples")
    assert run_command(["verify", "planted"]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "BROKEN" in told
    assert "mean_of_means: " in told
    assert run_command(["doctor", "planted"]) == 0
    assert "mean" in capsys.readouterr().out


@pytest.mark.slow
def test_a_leak_is_told_in_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    studied(tmp_path, monkeypatch, "planted_growth:KeepsLosses")
    found = examining.soak("planted", minutes=0.2)
    assert found["leak"]
    assert found["leak_source"].endswith("named `losses`")
    assert found["remedies"] == []
    assert any("named `losses`" in note for note in api.export("planted", "json")["notes"])
