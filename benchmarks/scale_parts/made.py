"""Studies of any size, made up: a space of 12,960 configurations, trials as a search would have left them."""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy import insert, text, update

from objectives.config import TrainingConfig, divisors
from objectives.contract import ObjectiveReference
from objectives.knobs import config_key, facts_to_mapping
from objectives.knobs.knob import Facts
from storage import queue, studies
from storage.database import Database
from storage.models import Run, Study, Trial
from storage.records import RunRecord, StudyRecord, TrialRecord
from tuner import spec as specs
from tuner.search.baseline import Baseline, baseline_config
from tuner.search.batch import GlobalBatch
from tuner.search.schedule import BASELINE_EVERY, CONTENDER_EVERY
from tuner.search.space import Space, make_space
from tuner.spec.model import Limits, StudySpec

BATCH = 5040
GIB = 2**30
LIMIT_BYTES = 64 * GIB
DEVICE = "made-up device"
METHODS = frozenset({"checkpoint_blocks", "set_attention", "set_loss", "set_batching", "set_tokens"})
FACTS = Facts(cores=8, workload_methods=METHODS)
SEARCH: dict[str, tuple[Any, ...]] = {
    "micro_batch_size": tuple(divisors(BATCH)),
    "precision": ("fp32", "bf16-mixed", "bf16-true"),
    "activation_checkpointing": ("none", "selective", "full"),
    "loss": ("full", "chunked"),
    "optimizer": ("adamw", "adamw-foreach", "adamw-fused"),
    "loader_workers": (0, 1, 2, 4),
}
NOISE = 0.01
_GAIN: dict[str, Any] = {
    "outcome": "completed", "cause": None, "peak_memory_bytes": GIB, "windows": 1,
}  # fmt: skip
START = datetime(2026, 1, 1, tzinfo=UTC)
STEP_SECONDS = tuple(0.1 for _ in range(20))
EVIDENCE = {"phase": "done", "log_tail": "some words of a log\n" * 20, "text": ""}
CHUNK = 500


def spec_of(sampler: str = "random", **limits: Any) -> StudySpec:
    """The spec of a made-up study."""
    return StudySpec(
        study=f"made-{uuid.uuid4().hex[:8]}",
        objective=ObjectiveReference(kind="causal_lm"),
        global_batch_size=BATCH,
        baseline={"micro_batch_size": 4},
        search=SEARCH,
        sampler=sampler,
        limits=Limits(**{"trials": 1_000_000, "window_seconds": 2.0, **limits}),
        transfer=False,
    )


def material(spec: StudySpec) -> tuple[Baseline, Space]:
    """Its baseline and its space."""
    batch = GlobalBatch(samples=spec.global_batch_size)
    baseline = baseline_config(spec, FACTS, batch)
    return baseline, make_space(spec, FACTS, batch, baseline.config.knobs())


def rows(spec: StudySpec, count: int, *, seed: int = 0) -> tuple[list[TrialRecord], list[RunRecord]]:
    """So many finished trials, with the further windows of baseline and contenders that a search takes."""
    chance = random.Random(seed)
    trials = [_trial(number, config, chance) for number, config in enumerate(_configs(spec, count, chance))]
    best = max(trials, key=lambda each: each.throughput or 0.0)
    trials[-1] = replace(trials[-1], **_GAIN, throughput=1.05 * (best.throughput or 1.0))  # else the search would end
    made: list[RunRecord] = []
    for trial in trials:
        made.append(_run(trial, "search", len(made), chance))
        if trial.number % BASELINE_EVERY == BASELINE_EVERY - 1:
            made.append(_run(trials[0], "repeat", len(made), chance))
        if trial.number % CONTENDER_EVERY == CONTENDER_EVERY - 1:
            made.append(_run(best, "repeat", len(made), chance))
    return trials, made


def _configs(spec: StudySpec, count: int, chance: random.Random) -> Iterator[TrainingConfig]:
    baseline, space = material(spec)
    others = [config for key, config in space.keyed() if key != config_key(baseline.config)]
    chance.shuffle(others)
    yield from islice((baseline.config, *others), count)


def _trial(number: int, config: TrainingConfig, chance: random.Random) -> TrialRecord:
    size = config.micro_batch_size
    speed = 100.0 * size / (size + 8) * (1.6 if config.precision != "fp32" else 1.0)
    speed *= {"none": 1.0, "selective": 0.9, "full": 0.75}[config.activation_checkpointing]
    peak = int((2 + size * 0.02 * (1.0 if config.activation_checkpointing == "none" else 0.5)) * GIB)
    fits = peak <= LIMIT_BYTES
    at = START + timedelta(seconds=10 * number)
    return TrialRecord(
        id=number + 1, study_id=0, number=number, config=config.to_mapping(), config_key=config_key(config),
        source="baseline" if number == 0 else "random", outcome="completed" if fits else "device_oom",
        cause=None if fits else "capacity", confidence="certain",
        throughput=speed * math.exp(chance.gauss(0, NOISE)) if fits else None, throughput_unit="samples_per_second",
        windows=int(fits), peak_memory_bytes=peak if fits else None, metrics={"phase": "done"}, evidence=EVIDENCE,
        seconds=2.0, created_at=at, finished_at=at + timedelta(seconds=2), changed=number + 1,
    )  # fmt: skip


def _run(trial: TrialRecord, purpose: str, order: int, chance: random.Random) -> RunRecord:
    at = START + timedelta(seconds=3 * order)
    said = None if trial.throughput is None else trial.throughput * math.exp(chance.gauss(0, NOISE))
    return RunRecord(
        id=str(uuid.UUID(int=chance.getrandbits(128))), study_id=0, trial_id=trial.id, purpose=purpose,
        outcome=trial.outcome, cause=trial.cause, confidence="certain", throughput=said,
        peak_memory_bytes=trial.peak_memory_bytes,
        measurement={"relative_standard_error": 0.002, "blocks": 20, "window_seconds": 2.0} if said else {},
        hardware={"name": DEVICE}, step_seconds=STEP_SECONDS if said else (), evidence=EVIDENCE, seconds=2.0,
        started_at=at, finished_at=at + timedelta(seconds=2), changed=order + 1,
    )  # fmt: skip


def store(database: Database, spec: StudySpec, count: int, *, device: str = DEVICE) -> StudyRecord:
    """Puts such a study into a store, prepared, so that workers go on with it at once."""
    made = queue.submit(database, name=spec.study, spec=specs.to_mapping(spec), identity=specs.identity(spec))
    facts = {"facts": facts_to_mapping(FACTS), "data": {}, "predictions": {}}
    studies.set_facts(database, made.id, facts, device=device, memory_limit_bytes=LIMIT_BYTES)
    if count:
        _insert(database, made.id, *rows(spec, count))
    return studies.get(database, made.id)


def _insert(database: Database, study_id: int, trials: list[TrialRecord], runs: list[RunRecord]) -> None:
    ids: dict[int, int] = {}
    for part in (trials[start : start + CHUNK] for start in range(0, len(trials), CHUNK)):
        values = [{**_values(each), "study_id": study_id, "changed": each.number + 1} for each in part]
        with database.transaction() as session:
            for number, id in session.execute(insert(Trial).returning(Trial.number, Trial.id), values):
                ids[number + 1] = id
    for start in range(0, len(runs), CHUNK):
        part = runs[start : start + CHUNK]
        given = [{**asdict(each), "study_id": study_id, "trial_id": ids[each.trial_id or 0]} for each in part]
        with database.transaction() as session:
            session.execute(insert(Run), given)
    counted = {"trial_count": len(trials), "version": len(trials) + len(runs) + 10}
    with database.transaction() as session:
        session.execute(update(Study).where(Study.id == study_id).values(**counted))
    _analyse(database)


def _analyse(database: Database) -> None:
    """As the server does by itself after a while."""
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))


def _values(trial: TrialRecord) -> dict[str, Any]:
    return {name: value for name, value in asdict(trial).items() if name != "id"}


def more_studies(database: Database, study_id: int, count: int, trials: int) -> None:
    """Copies of a study, each with the first so many of its trials."""
    columns = "status, spec, identity, facts, device, memory_limit_bytes, seconds, version, created_at, submitted_at"
    names = (column.name for column in Trial.__table__.columns)
    narrow = ", ".join(name for name in names if name not in ("id", "study_id"))
    with database.transaction() as session:
        session.execute(
            text(
                f"INSERT INTO tuner_study (name, trial_count, {columns}) SELECT name || '-' || n, :trials, {columns} "
                "FROM tuner_study, generate_series(1, :count) AS n WHERE id = :id"
            ),
            {"id": study_id, "count": count, "trials": trials},
        )
        session.execute(
            text(
                f"INSERT INTO tuner_trial (study_id, {narrow}) SELECT other, {narrow} FROM tuner_trial "
                "JOIN (SELECT id AS other FROM tuner_study) AS others ON other <> :id "
                "WHERE study_id = :id AND number < :trials"
            ),
            {"id": study_id, "trials": trials},
        )
    _analyse(database)


def optuna_study(url: str) -> str:
    """An empty study of plain Optuna; returns its name."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    name = f"plain-{uuid.uuid4().hex[:8]}"
    optuna.create_study(study_name=name, storage=url, directions=["maximize", "minimize"])
    return name


def optuna_reads(url: str, name: str) -> dict[str, Callable[[], object]]:
    """Plain Optuna's front and table of a study, read by a fresh process as a screen would: nothing cached."""
    import optuna

    def fresh() -> Any:
        return optuna.load_study(study_name=name, storage=optuna.storages.RDBStorage(url))

    return {
        "front": lambda: fresh().best_trials,
        "table, first page": lambda: fresh().get_trials(deepcopy=False)[:50],
    }
