"""A pipeline of known pace is measured by a real child, stored with the study, and not measured again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage import runs, studies
from storage.database import Database
from tuner import spec as specs
from tuner.settings import Settings
from tuner.stop import Stop
from tuner.work.loader_capacity import loader_capacities
from tuner.work.preparation import prepare
from tuner.work.study import opened

WORKLOADS = Path(__file__).parent.parent / "workloads"
LOAD_SECONDS = 0.05
SPEC = {
    "study": "paced",
    "objective": {"kind": "tests_paced:Paced", "settings": {"load_seconds": LOAD_SECONDS}},
    "global_batch_size": 8,
    "baseline": {"micro_batch_size": 2},
    "search": {"micro_batch_size": [2, 4], "loader_workers": [0, 1], "prefetch_factor": [2, 4]},
    "sampler": "auto",
}


def test_each_setting_is_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TUNER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TUNER_DATABASE_URL", raising=False)
    (tmp_path / "tests_paced.py").write_bytes((WORKLOADS / "tests_paced.py").read_bytes())
    (tmp_path / "spec.yaml").write_text(json.dumps(SPEC), encoding="utf-8")
    spec, settings = specs.read(tmp_path / "spec.yaml"), Settings.from_environment()
    database = Database.open(settings.store_url)
    database.prepare()
    study = studies.create(database, name="paced", spec=specs.to_mapping(spec), identity=specs.identity(spec))
    with opened(database, study, spec, folder=settings.data_dir, stop=Stop(), report=lambda _progress: None) as session:
        baseline, space = prepare(session).baseline_and_space(spec)
        first = loader_capacities(session, baseline, space)
        again = loader_capacities(session, baseline, space)
    assert first == again
    assert [(each.settings["loader_workers"], each.settings["prefetch_factor"]) for each in first] == [
        (0, 2), (1, 2), (1, 4),
    ]  # fmt: skip
    for each in first:
        assert 0.3 * 4 / LOAD_SECONDS < each.throughput < 1.1 * 4 / LOAD_SECONDS  # it sleeps so long for each four
        assert 0 <= each.relative_standard_error < 1
    (run,) = runs.list_of(database, study_id=study.id, purpose="loader_capacity")
    database.close()
    assert (run.outcome, run.trial_id, len(run.measurement["capacities"])) == ("completed", None, 3)
