"""Which studies of a store a new one starts from: found, told and kept once; only the knobs' effects are taken."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from search_fakes import FACTS, spec_of

from objectives.config import TrainingConfig
from objectives.contract import ObjectiveReference
from objectives.knobs import config_key, facts_to_mapping
from storage import studies, trials
from storage.database import Database
from storage.records import StudyRecord
from tuner import spec as specs
from tuner.spec.model import StudySpec
from tuner.work.transferring import FACT, earlier_of

DEVICE = "Xeon, 2 cores"


@dataclass
class Holder:
    """The part of a session that is looked at."""

    database: Database
    study: StudyRecord
    spec: StudySpec
    told: list[Any] = field(default_factory=list)

    def report(self, fact: Any) -> None:
        self.told.append(fact)

    def refresh(self, study: StudyRecord) -> None:
        self.study = study


def spec_named(name: str, family: str = "llama", **values: Any) -> StudySpec:
    settings = {"model": {"config": {"model_type": family}}, "data": {"sequence_length": 128}}
    return spec_of(study=name, objective=ObjectiveReference(kind="causal_lm", settings=settings), **values)


def stored(
    database: Database, name: str, *, measured: int = 0, device: str = DEVICE, family: str = "llama", **values: Any
) -> Holder:
    spec = spec_named(name, family, **values)
    made = studies.create(database, name=name, spec=specs.to_mapping(spec), identity=specs.identity(spec))
    facts = {"facts": facts_to_mapping(FACTS), "data": {"parameters": 10_000}}
    made = studies.set_facts(database, made.id, facts, device=device, memory_limit_bytes=2**30)
    for number in range(measured):
        config = TrainingConfig(micro_batch_size=number + 1)
        trial = trials.reserve(
            database, study_id=made.id, config=config.to_mapping(), config_key=config_key(config), source="auto"
        )
        assert trial is not None
        trials.finish(
            database, trial.id, outcome="completed", throughput=10.0 + number, throughput_unit="tokens_per_second",
            peak_memory_bytes=2**20, seconds=5.0, windows=1,
        )  # fmt: skip
    return Holder(database, made, spec)


def test_alike_studies_are_found_told_and_kept(sqlite_database: Database) -> None:
    stored(sqlite_database, "other device", measured=5, device="H200")
    stored(sqlite_database, "too few", measured=2)
    stored(sqlite_database, "other family", measured=4, family="gpt2")
    stored(sqlite_database, "same", measured=6)
    new = stored(sqlite_database, "new", measured=1)
    found = earlier_of(new)  # type: ignore[arg-type]
    assert [(each.name, len(each.seen)) for each in found] == [("same", 6), ("other family", 4)]
    assert found[0].similarity > found[1].similarity
    assert new.told[0].text.startswith("starts from 2 earlier studies: same (6 trials, 95% alike), other family")
    assert [each["study"] for each in new.study.facts[FACT]] == ["same", "other family"]
    assert new.study.facts["data"] == {"parameters": 10_000}
    later = replace(new, told=[], study=studies.get(sqlite_database, new.study.id))
    stored(sqlite_database, "came later", measured=6)
    studies.delete(sqlite_database, new.study.facts[FACT][1]["id"])
    assert [each.name for each in earlier_of(later)] == ["same"]  # type: ignore[arg-type]
    assert later.told == []


@pytest.mark.parametrize("values", [{"transfer": False}, {"sampler": "tpe"}])
def test_who_opts_out_or_cannot_use_it_starts_from_nothing(sqlite_database: Database, values: dict[str, Any]) -> None:
    stored(sqlite_database, "same", measured=6)
    new = stored(sqlite_database, "new", **values)
    assert earlier_of(new) == ()  # type: ignore[arg-type]
    assert new.told == []
    assert FACT not in new.study.facts


def test_a_store_with_nothing_alike_says_nothing_and_looks_once(sqlite_database: Database) -> None:
    new = stored(sqlite_database, "new")
    assert earlier_of(new) == ()  # type: ignore[arg-type]
    assert (new.told, new.study.facts[FACT]) == ([], [])
