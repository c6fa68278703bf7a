"""``tuner doctor`` and ``tuner report`` on a study in a real store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from objectives.config import TrainingConfig
from objectives.contract import ObjectiveReference
from objectives.knobs import config_key, facts_to_mapping
from objectives.knobs.knob import Facts
from storage import runs, studies, trials
from tuner import spec as specs
from tuner.cli.outcome import run_command
from tuner.documents import ADVICE, CHECK, DIAGNOSIS, EVIDENCE, REPORT, missing
from tuner.opening import opened_store
from tuner.spec.model import StudySpec

RATES = {1: 400.0, 8: 1000.0}


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study of two micro-batch sizes, twice each."""
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("TUNER_DATABASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    spec = StudySpec(study="two sizes", objective=ObjectiveReference(kind="causal_lm"), global_batch_size=8)
    with opened_store() as database:
        made = studies.create(
            database, name=spec.study, spec=specs.to_mapping(spec), identity=specs.identity(spec)
        )  # fmt: skip
        facts = {"facts": facts_to_mapping(Facts(cores=2))}
        studies.set_facts(database, made.id, facts, device="CPU", memory_limit_bytes=2**32)
        for size, rate in RATES.items():
            config = TrainingConfig(micro_batch_size=size, accumulation_steps=8 // size)
            trial = trials.reserve(
                database, study_id=made.id, config=config.to_mapping(), config_key=config_key(config), source="auto"
            )  # fmt: skip
            assert trial is not None
            for purpose in ("search", "repeat"):
                name = f"{purpose}-{size}"
                runs.start(database, id=name, study_id=made.id, trial_id=trial.id, purpose=purpose)
                measured = {"data_wait_share": 0.01, "memory": {"swap_bytes": 0}}
                runs.finish(database, name, outcome="completed", throughput=rate, measurement=measured)
            end = {"throughput": rate, "throughput_unit": "tokens_per_second", "peak_memory_bytes": size * 2**28}
            trials.finish(database, trial.id, outcome="completed", **end)  # type: ignore[arg-type]


@pytest.mark.usefixtures("stored")
def test_the_doctor_s_json_is_one_document_with_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["doctor", "two sizes", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert not missing(document, DIAGNOSIS)
    assert [each["mistake"] for each in document["checks"]] == [1, 2, 3, 4, 5, 6, 7]
    for check in document["checks"]:
        assert not missing(check, CHECK)
        assert not [gap for each in check["evidence"] for gap in missing(each, EVIDENCE)]
        assert not [gap for each in check["advice"] for gap in missing(each, ADVICE)]
    batch = document["checks"][0]
    assert batch["verdict"] == "improve"
    assert batch["advice"][0]["knobs"] == {"micro_batch_size": 8, "accumulation_steps": 1}
    assert "search-1" in batch["evidence"][0]["runs"]


@pytest.mark.usefixtures("stored")
def test_for_people_each_check_has_its_verdict_its_numbers_and_its_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["doctor", "two sizes"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "1. Batch against memory" in told
    assert "improve: Micro-batch 8 fits and is faster than the baseline's 1: 2.50x" in told
    assert "-> micro-batch 8 x 1 accumulation step = 8 instead of micro-batch 1 x 8 accumulation steps = 8" in told
    assert "measure it: `tuner verify two sizes`" in told


@pytest.mark.usefixtures("stored")
def test_the_report_is_written_where_it_is_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_command(["report", "two sizes", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert not missing(document, REPORT)
    assert Path(document["written"]) == tmp_path / "two-sizes.html"
    assert (tmp_path / "two-sizes.html").stat().st_size == document["bytes"]
    assert run_command(["report", "two sizes", "--output", "out/r.html"]) == 0
    assert (tmp_path / "out" / "r.html").read_text() == (tmp_path / "two-sizes.html").read_text()


@pytest.mark.usefixtures("stored")
def test_what_cannot_be_answered_says_why(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_command(["doctor", "nobody"]) == 2
    assert "two sizes" in capsys.readouterr().err
    (tmp_path / "mine.html").write_text("mine")
    assert run_command(["report", "two sizes", "--output", "mine.html"]) == 1
    assert "--output" in capsys.readouterr().err
