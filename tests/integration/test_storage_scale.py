"""Reads of a study of 10,000 trials in a store of 1,000 studies and 100,000 trials; minutes long."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator

import pytest
from postgres import Server
from sqlalchemy import text

from storage import overview, trial_table, trials
from storage.database import Database
from tuner.search.projection import Projection

pytestmark = pytest.mark.slow

READ_SECONDS = 0.3
STUDIES = """INSERT INTO tuner_study (id, name, status, spec, identity, facts, device, memory_limit_bytes, seconds,
version, trial_count, created_at, submitted_at)
SELECT id, 'study ' || id, 'finished', CAST(:spec AS json), '{}', '{}', 'H200', 80000, 10, 10001, 1, now(), now()
FROM generate_series(1, 1000) AS id"""
TRIALS = """INSERT INTO tuner_trial (study_id, number, config, config_key, source, outcome, throughput,
throughput_unit, windows, confirmed, peak_memory_bytes, metrics, evidence, seconds, created_at, finished_at, changed)
SELECT id, n, jsonb_build_object('micro_batch_size', 1 << (n % 6), 'precision',
(ARRAY['fp32', 'bf16-mixed', 'bf16-true'])[1 + n % 3], 'pin_memory', n % 2 = 0), md5(n::text), 'tpe', outcome,
CASE outcome WHEN 'completed' THEN random() * 1000 END, 'tokens_per_second', 1, false,
CASE outcome WHEN 'completed' THEN (random() * 90000)::bigint END, CAST(:wide AS jsonb), CAST(:wide AS jsonb), 12.5,
now(), now(), n + 1
FROM (SELECT id, n, (ARRAY['completed', 'completed', 'device_oom', 'crashed'])[1 + n % 4] AS outcome
FROM generate_series(1, 1000) AS id, generate_series(0, CASE id WHEN 1 THEN 9999 ELSE 89 END) AS n) AS made"""
SPEC = {
    "search": {
        "micro_batch_size": [1, 2, 4, 8, 16, 32],
        "precision": ["fp32", "bf16-mixed", "bf16-true"],
        "pin_memory": [True, False],
    }
}


@pytest.fixture(scope="module")
def store(postgres_server: Server, migrated_template: str) -> Iterator[Database]:
    name = postgres_server.create(template=migrated_template)
    database = Database.open(postgres_server.url(name))
    wide = json.dumps({f"key {number}": "some words of a log " * 3 for number in range(30)})
    with database.transaction() as session:
        session.execute(text(STUDIES), {"spec": json.dumps(SPEC)})
        session.execute(text(TRIALS), {"wide": wide})
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))
    yield database
    database.close()
    postgres_server.drop(name)


READS: dict[str, Callable[[Database], object]] = {
    "list": overview.list_studies,
    "front": lambda store: trial_table.front(store, 1),
    "first page": lambda store: trial_table.page(store, 1),
    "last page": lambda store: trial_table.page(store, 1, offset=9950),
    "fastest": lambda store: trial_table.page(store, 1, order_by="throughput", descending=True),
    "filtered": lambda store: trial_table.page(
        store, 1, outcomes=["completed"], knobs={"precision": "bf16-true", "micro_batch_size": 4, "pin_memory": True}
    ),
    "what is new": lambda store: trials.changed_since(store, 1, 9_990),
}


@pytest.mark.parametrize("name", READS)
def test_a_screen_reads_in_time(store: Database, name: str) -> None:
    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        READS[name](store)
        seconds.append(time.perf_counter() - begun)
    assert statistics.median(seconds) < READ_SECONDS, seconds


def test_ten_thousand_trials_are_projected_in_seconds(store: Database) -> None:
    """At 35 ms a trial it were six minutes."""
    projection = Projection(store)
    begun = time.perf_counter()
    assert projection.rebuild(1) == 10_000
    assert time.perf_counter() - begun < 30
    begun = time.perf_counter()
    assert projection.heal(1) == 0
    assert time.perf_counter() - begun < READ_SECONDS
