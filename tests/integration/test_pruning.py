"""A run that can no longer reach the front is really stopped, and what it showed until then is kept as a bound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage import runs, studies, trials
from storage.database import Database
from storage.records import RunRecord, TrialRecord
from tuner import api
from tuner.settings import Settings

WORKLOADS = Path(__file__).parent.parent / "workloads"
SLOWER = 60
"""The rival with the smaller micro-batch is then thirty times as fast: one step is enough to know."""
SPEC = {
    "study": "pruned",
    "objective": {
        "kind": "tests_capacity:Capacity",
        "settings": {
            "mib_per_sample": 8, "floor_seconds": 0.02, "slope_seconds": 0.0005, "slow": {"mixed": SLOWER}
        },
    },
    "global_batch_size": 8,
    "baseline": {"micro_batch_size": 2},
    "search": {"micro_batch_size": [2, 4, 8], "precision": ["fp32", "bf16-mixed"]},
    "limits": {"trials": 4, "window": "0.6s", "trial_time": "30s", "memory": "2GiB"},
    "sampler": "random",
    "seed": 82,  # both exact ones first, then the mixed one of four samples
}  # fmt: skip


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[TrialRecord, ...], tuple[RunRecord, ...]]:
    folder = tmp_path_factory.mktemp("pruning")
    (folder / "tests_capacity.py").write_bytes((WORKLOADS / "tests_capacity.py").read_bytes())
    path = folder / "spec.yaml"
    path.write_text(json.dumps(SPEC), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNER_DATA_DIR", str(folder / "data"))
        patch.setenv("TUNER_CACHE_DIR", str(folder / "cache"))
        patch.delenv("TUNER_DATABASE_URL", raising=False)
        answer = api.run(path).to_json()
        assert answer["status"] == "finished"
        assert answer["best"]["config"]["precision"] == "fp32"
        database = Database.open(Settings.from_environment().store_url)
        study = studies.find(database, "pruned")
        assert study is not None
        found = trials.list_of(database, study.id), runs.list_of(database, study_id=study.id)
        database.close()
    return found


@pytest.mark.case("C09")
def test_a_dominated_run_ends_early_as_pruned_with_a_true_bound(
    stored: tuple[tuple[TrialRecord, ...], tuple[RunRecord, ...]],
) -> None:
    trials_, runs_ = stored
    pruned = [trial for trial in trials_ if trial.outcome == "pruned"]
    assert pruned, [(each.number, each.outcome, each.throughput, each.config) for each in trials_]
    fastest = max(each.throughput or 0.0 for each in trials_ if each.outcome == "completed")
    for trial in pruned:
        size = int(trial.config["micro_batch_size"])
        at_most = 8 / (8 / size * SLOWER * (0.02 + 0.0005 * size))  # it sleeps so long, and more around it
        assert trial.cause == "dominated"
        assert trial.throughput is not None
        assert 0.5 * at_most < trial.throughput < fastest
        assert trial.peak_memory_bytes is not None
        assert trial.peak_memory_bytes > 8 * size * 2**20 * 0.9
        assert trial.windows == 0
        assert trial.throughput_standard_error is None
        (run,) = [each for each in runs_ if each.trial_id == trial.id]
        assert (run.outcome, run.cause, run.throughput) == ("pruned", "dominated", trial.throughput)
        assert 1 <= len(run.step_seconds) <= 5


def test_neither_baseline_nor_confirmation_is_stopped(
    stored: tuple[tuple[TrialRecord, ...], tuple[RunRecord, ...]],
) -> None:
    trials_, runs_ = stored
    assert trials_[0].outcome == "completed"
    assert {run.outcome for run in runs_ if run.purpose in ("repeat", "confirm")} == {"completed"}


def test_every_trial_has_its_prediction_beside_its_measurement(
    stored: tuple[tuple[TrialRecord, ...], tuple[RunRecord, ...]],
) -> None:
    trials_, runs_ = stored
    assert [run.outcome for run in runs_ if run.purpose == "estimate"] == ["completed"]
    for trial in trials_:
        assert trial.predicted_peak_memory_bytes is not None
        assert trial.peak_memory_bytes is not None
        assert abs(trial.predicted_peak_memory_bytes - trial.peak_memory_bytes) < 0.5 * trial.peak_memory_bytes + 2**22
