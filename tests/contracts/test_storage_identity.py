"""A stored study is recognised as itself, and an edited one is not, whatever the database does to its JSON."""

from __future__ import annotations

from dataclasses import replace

import pytest

from objectives.contract import ObjectiveReference
from storage import studies
from storage.database import Database
from tuner.spec import Limits, StudySpec, difference, from_mapping, identity, to_mapping

SPEC = StudySpec(
    study="edited",
    objective=ObjectiveReference(kind="causal_lm", settings={"model": {"config": {"rope_theta": 1e4}}, "data": {}}),
    global_batch_size=256,
    baseline={"micro_batch_size": 4, "pin_memory": True},
    search={"precision": ("fp32", "bf16-mixed"), "micro_batch_size": (64, 128, 256), "pin_memory": (False, True)},
)


def stored(database: Database) -> dict[str, object]:
    made = studies.create(database, name=SPEC.study, spec=to_mapping(SPEC), identity=identity(SPEC))
    assert from_mapping(made.spec) == SPEC
    assert list(made.spec["search"]) == list(SPEC.search)
    return dict(made.identity)


@pytest.mark.case("G11")
def test_the_same_spec_is_the_same_study(database: Database) -> None:
    limits = replace(SPEC, limits=Limits(trials=99), sampler="gp")
    known = stored(database)
    assert difference(known, identity(SPEC)) == difference(known, identity(limits)) == []


@pytest.mark.case("G11")
@pytest.mark.parametrize(
    "choices",
    [(64, 128), (128, 64, 256), (64, 128, 512), (64.0, 128.0, 256.0), ("64", "128", "256"), (64, 128, 256, 512)],
    ids=["dropped", "reordered", "another", "floats", "texts", "added"],
)
def test_an_edited_space_is_another_study(database: Database, choices: tuple[object, ...]) -> None:
    edited = replace(SPEC, search={**SPEC.search, "micro_batch_size": choices})
    (line,) = difference(stored(database), identity(edited))
    assert "micro_batch_size" in line


@pytest.mark.case("G11")
def test_a_boolean_that_became_a_number_is_another_study(database: Database) -> None:
    edited = replace(SPEC, search={**SPEC.search, "pin_memory": (0, 1)})
    assert "pin_memory" in difference(stored(database), identity(edited))[0]


@pytest.mark.case("B14")
def test_another_global_batch_is_another_study(database: Database) -> None:
    (line,) = difference(stored(database), identity(replace(SPEC, global_batch_size=128)))
    assert line == "global_batch_size: 256 in the store, 128 in the spec"
