"""A large store on a PostgreSQL of its own: 1,000 studies, 100,000 trials, one study of 10,000; and a live one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import text

from storage.database import Database

TESTS = Path(__file__).parents[2] / "tests"
if str(TESTS) not in sys.path:
    sys.path.append(str(TESTS))

import postgres  # noqa: E402 - the tests' own folder, added above
from recorded import grow, record  # noqa: E402

LARGE, LIVE = "large", "live"
TABLE = "llama-dev"
LIVE_TRIALS = 300
STUDIES = """INSERT INTO tuner_study (name, status, spec, identity, facts, device, memory_limit_bytes, seconds, version,
trial_count, created_at, submitted_at)
SELECT 'study ' || n, 'finished', large.spec, large.identity, '{}', large.device, large.memory_limit_bytes, 600, 91,
90, now() - n * interval '1 hour', now() FROM tuner_study AS large, generate_series(1, :studies) AS n
WHERE large.name = :large"""
TRIALS = """INSERT INTO tuner_trial (study_id, number, config, config_key, source, outcome, throughput, throughput_unit,
windows, confirmed, peak_memory_bytes, metrics, evidence, seconds, created_at, finished_at, changed)
SELECT s.id, n, jsonb_build_object('micro_batch_size', 1 << (n % 6), 'precision',
(ARRAY['fp32', 'bf16-mixed', 'bf16-true'])[1 + n % 3]), md5(n::text), 'auto', outcome,
CASE outcome WHEN 'completed' THEN random() * 1000 END, 'tokens_per_second', 1, false,
CASE outcome WHEN 'completed' THEN (random() * 90000000)::bigint END, '{}', '{}', 12.5, now(), now(), n + 1
FROM tuner_study AS s, LATERAL (SELECT n,
(ARRAY['completed', 'completed', 'device_oom', 'crashed'])[1 + n % 4] AS outcome
FROM generate_series(0, 89) AS n) AS made WHERE s.name LIKE 'study %'"""
RUNNING = "UPDATE tuner_study SET submitted_at = now() WHERE name = :live"


@contextmanager
def large_store(*, trials: int, studies: int) -> Iterator[tuple[str, Database]]:
    """The URL of the store, and the store.

    Args:
        trials: Of the large study.
        studies: In all; those beside the large one have 90 trials each.
    """
    with postgres.private_server() as server:
        url = server.url(server.create())
        database = Database.open(url, application_name="tuner bench")
        try:
            database.prepare()
            grow(database, record(database, TABLE, study=LARGE), trials)
            record(database, TABLE, study=LIVE, most=LIVE_TRIALS, finished=False)
            with database.transaction() as session:
                session.execute(text(STUDIES), {"large": LARGE, "studies": studies - 2})
                session.execute(text(TRIALS))
                session.execute(text(RUNNING), {"live": LIVE})
            with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.execute(text("ANALYZE"))
            yield url, database
        finally:
            database.close()
