"""Confirmed results as the store hands them out, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

from confirmed_studies import GIB, H100, confirmed_study

from storage.confirmed import confirmed_studies
from storage.database import Database


def test_only_studies_that_confirmed_something_newest_first_and_bounded(database: Database) -> None:
    confirmed_study(database, "first")
    confirmed_study(database, "searched", confirmed=False)
    confirmed_study(database, "last")
    assert [each.name for each in confirmed_studies(database)] == ["last", "first"]
    assert [each.name for each in confirmed_studies(database, limit=1)] == ["last"]
    assert [each.name for each in confirmed_studies(database, name="first")] == ["first"]


def test_a_study_comes_with_its_trials_fastest_first_and_what_they_belong_to(database: Database) -> None:
    made = confirmed_study(database, driver="570.1")
    found = confirmed_studies(database)[0]
    assert [(each.number, each.confirmed_throughput) for each in found.trials] == [(1, 200.0), (0, 100.0)]
    assert (found.id, found.device, found.spec) == (made.id, H100, made.spec)
    assert found.data["model_shape"]["vocab_size"] == 512
    assert (found.hardware["total_memory_bytes"], found.hardware["driver"]) == (80 * GIB, "570.1")


def test_an_empty_store_has_none(database: Database) -> None:
    assert confirmed_studies(database) == ()
