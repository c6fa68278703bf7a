"""``tuner lookup`` and ``tuner.best_config`` on a store with confirmed studies."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confirmed_studies import GIB, H100, LLAMA, confirmed_study

import tuner
from storage.database import Database
from tuner.cli.outcome import run_command
from tuner.documents import ANSWER, LOOKUP, missing
from tuner.errors import StoreError, StudyError
from tuner.lookup import _here
from tuner.settings import Settings

ASKED: dict[str, Any] = {"model": LLAMA, "device": "H100", "sequence_length": 1024, "global_batch_size": 16}


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [each for each in os.environ if each.startswith("TUNER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("TUNER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def store(nothing: Path) -> Iterator[Database]:
    database = Database.open(Settings.from_environment().store_url)
    database.prepare()
    yield database
    database.close()


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    def asked(*arguments: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        status = run_command(["lookup", *arguments, "--json"])
        return status, json.loads(capsys.readouterr().out)

    return asked


def test_exactly_what_was_measured_comes_back(store: Database) -> None:
    confirmed_study(store)
    found = tuner.best_config(**ASKED)
    assert (found.exact, found.differences) == (True, ())
    assert (found["micro_batch_size"], found["precision"], found["accumulation_steps"]) == (8, "bf16-mixed", 2)
    assert found.throughput == pytest.approx(200.0)
    assert found.throughput_interval[0] < 200.0 < found.throughput_interval[1]
    assert found.training_config.micro_batch_size == 8
    assert (found.study, found.trial, found.peak_memory_bytes) == ("llama", 1, 40 * GIB)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sequence_length": 2048}, "rows of 1024 tokens, not of 2048: longer rows need more memory"),
        ({"sequence_length": 512}, "tested with longer rows"),
        ({"global_batch_size": 32}, "global batch of 16, not of 32"),
        ({"model": {**LLAMA, "hidden_size": 768}}, "hidden_size 512, not 768"),
        ({"model": {**LLAMA, "num_hidden_layers": 6}}, "num_hidden_layers 4, not 6"),
        ({"device": "A100"}, f"measured on {H100}, not on A100: its speed there is not known"),
        ({"model": "llama"}, "not its size"),
        ({"world_size": 2}, "on one rank, not on 2"),
    ],
)
def test_the_nearest_says_what_is_different(store: Database, changed: dict[str, Any], said: str) -> None:
    confirmed_study(store)
    found = tuner.best_config(**{**ASKED, **changed})
    assert found.exact is False
    assert said in " ".join(found.differences)
    batch, ranks = {**ASKED, **changed}["global_batch_size"], changed.get("world_size", 1)
    assert found["micro_batch_size"] * found["accumulation_steps"] * ranks == batch


def test_the_nearer_study_wins_and_others_are_named(store: Database, ask: Any) -> None:
    confirmed_study(store, "long", length=4096)
    confirmed_study(store, "near")
    confirmed_study(store, "wide", model={"hidden_size": 1024})
    (Path.cwd() / "config.json").write_text(json.dumps(LLAMA))
    arguments = ["--model", "config.json", "--device", "H100", "--sequence-length", "1024", "--global-batch", "16"]
    status, document = ask(*arguments)
    assert status == 0
    assert missing(document, LOOKUP) == []
    assert missing(document["answer"], ANSWER) == []
    assert (document["answer"]["study"], document["answer"]["exact"]) == ("near", True)
    assert {each["study"] for each in document["others"]} == {"long", "wide"}
    assert document["query"]["model"] == "config.json"


@pytest.mark.case("B07")
def test_a_micro_batch_that_does_not_divide_the_jobs_batch_is_never_the_answer(store: Database) -> None:
    confirmed_study(store)
    found = tuner.best_config(**{**ASKED, "global_batch_size": 12})
    assert found["micro_batch_size"] == 1, "8 does not divide 12; the confirmed baseline does"
    assert found["accumulation_steps"] == 12


def test_a_capped_result_is_never_the_small_cards_speed(store: Database) -> None:
    confirmed_study(store, memory="24GiB", peaks=(10 * GIB, 20 * GIB))
    small = tuner.best_config(**{**ASKED, "device": "RTX 4090", "memory": "24GiB"})
    assert (small.throughput, small.throughput_interval, small.found_under_cap) == (None, None, True)
    assert f"on {H100} under a memory cap of 24.00 GiB" in " ".join(small.differences)
    large = tuner.best_config(**ASKED)
    assert large.exact is False
    assert "its whole memory may hold a faster one" in " ".join(large.differences)
    assert tuner.best_config(**{**ASKED, "memory": "24GiB"}).exact is True


def test_memory_picks_what_fits_among_the_confirmed(store: Database) -> None:
    confirmed_study(store)
    assert tuner.best_config("llama", memory="30GiB").trial == 0
    assert tuner.best_config("llama", memory="40GiB").trial == 1
    assert tuner.best_config("llama", memory="10GiB") is None


def test_what_changed_on_this_machine_since_is_said(store: Database, capsys: pytest.CaptureFixture[str]) -> None:
    names, software = _here()
    mine = sorted(names)[0]
    confirmed_study(store, "old", device=mine, versions={"torch": "2.1.0", "transformers": software["transformers"]})
    assert tuner.best_config("old").stale == (f"torch 2.1.0 then, {software['torch']} now",)
    confirmed_study(store, "new", device=mine, versions={"torch": software["torch"]})
    assert tuner.best_config("new").stale == ()
    confirmed_study(store, "elsewhere")
    assert tuner.best_config("elsewhere").stale is None
    run_command(["lookup", "--model", "llama", "--device", mine])
    assert "not its size" in capsys.readouterr().out


def test_nothing_near_is_no_answer(store: Database, ask: Any, capsys: pytest.CaptureFixture[str]) -> None:
    confirmed_study(store)
    confirmed_study(store, "searched", confirmed=False)
    assert tuner.best_config(model={"model_type": "gpt2", "n_embd": 512, "n_layer": 4}) is None
    assert tuner.best_config(model={"model_type": "gpt2"}, default="mine") == "mine"
    status, document = ask("--model", "other/model")
    assert (status, document["answer"], document["others"]) == (1, None, [])
    assert run_command(["lookup", "--model", "other/model"]) == 1
    assert "Nothing comes near" in capsys.readouterr().out


def test_adapters_and_other_lengths_are_not_the_whole_models_answer(store: Database) -> None:
    confirmed_study(store, "adapters", lora={"r": 8})
    assert "LoRA" in " ".join(tuner.best_config(**ASKED).differences)


def test_a_job_without_a_store_falls_back_to_its_own_settings(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"micro_batch_size": 4}
    assert tuner.best_config(**ASKED, default=own) is own
    assert not (nothing / "data").exists(), "asking makes no store"
    with pytest.raises(StoreError, match="no store"):
        tuner.best_config(**ASKED)
    monkeypatch.setenv("TUNER_DATABASE_URL", "postgresql://nobody@127.0.0.1:9/none")
    assert tuner.best_config(**ASKED, default=None) is None
    assert tuner.best_config(model=3, sequence_length="x", default=own) is own


def test_arguments_that_cannot_be_used_are_refused(store: Database) -> None:
    for wrong in ({"sequence_length": 0}, {"memory": "92%"}, {"model": 3}, {"world_size": True}):
        with pytest.raises(StudyError):
            tuner.best_config(**wrong)
    with pytest.raises(StudyError, match="no study 'x'"):
        tuner.best_config("x")
