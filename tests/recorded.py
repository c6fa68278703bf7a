"""A store filled with what real devices measured: the recorded tables as studies, through the store's own functions."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import func, insert, select, update

from objectives.config import TrainingConfig
from objectives.knobs import config_key, facts_to_mapping
from objectives.knobs.knob import Facts
from storage import runs, studies, trials
from storage.database import Database
from storage.models import Run, Study, Trial
from storage.records import StudyRecord
from tuner import spec as specs
from tuner.answer.summary import StudyView

TABLES = Path(__file__).parents[1] / "benchmarks" / "tables" / "dev"
METHODS = frozenset({"checkpoint_blocks", "set_attention", "set_loss", "set_batching", "set_tokens"})
FIXED = ("accumulation_steps",)
CONFIRMED_AFTER = 3
"""Recorded runs of a row that stand for its search and repeats; the further ones for its confirmation."""


def table(name: str) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    """Head and rows of a recorded table."""
    head, *rows = [json.loads(line) for line in (TABLES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    return head, rows


def record(
    database: Database, name: str, *, study: str | None = None, most: int = 1000, finished: bool = True
) -> StudyRecord:
    """Stores a recorded table as a study: baseline first, some trials repeated, winner and baseline confirmed."""
    head, rows = table(name)
    rows = _baseline_first(rows, head["baseline"])
    made = studies.create(database, name=study or name, **_documents(study or name, head, rows))
    facts = {"facts": facts_to_mapping(Facts(cores=2, workload_methods=METHODS)), "data": {"longest_row": 64}}
    made = studies.set_facts(
        database, made.id, facts, device=head["device"], memory_limit_bytes=head["memory_limit_bytes"]
    )
    studies.set_status(database, made.id, "running")
    rows = rows[:most]
    for row in rows:
        _trial(database, made, head, row)
    if finished:
        _confirm(database, made, rows)
        studies.set_status(database, made.id, "finished", "every configuration has been tried")
    studies.add_seconds(database, made.id, sum(row["seconds"] for row in rows))
    return studies.get(database, made.id)


def _baseline_first(rows: list[dict[str, Any]], baseline: Mapping[str, Any]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["config"] != baseline)


def _documents(study: str, head: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = [name for name in rows[0]["config"] if name not in FIXED]
    searched = {name: list(dict.fromkeys(row["config"][name] for row in rows)) for name in names}
    model = {"config": {"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}}
    data = {"path": "stdlib", "tokenizer": {"train": {"vocab_size": 4096}}, "sequence_length": 64}
    asked = specs.read(
        {
            "study": study,
            "objective": {"kind": "causal_lm", "model": model, "data": data},
            "global_batch_size": head["global_batch_size"],
            "baseline": {name: rows[0]["config"][name] for name in names if len(searched[name]) > 1},
            "search": {name: values for name, values in searched.items() if len(values) > 1},
            "limits": {"trials": max(len(rows), 2), "time": "20m"},
        }
    )
    return {"spec": specs.to_mapping(asked), "identity": specs.identity(asked)}


def _trial(database: Database, study: StudyRecord, head: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    config = TrainingConfig.from_mapping(row["config"])
    made = trials.reserve(
        database, study_id=study.id, config=config.to_mapping(), config_key=config_key(config), source="auto",
        predicted_peak_memory_bytes=row.get("predicted_peak_memory_bytes"),
    )  # fmt: skip
    assert made is not None
    measured = row["outcome"] == "completed"
    end = {
        "cause": None if measured else row.get("cause", "cap"), "confidence": "certain",
        "throughput": row.get("throughput") if measured else None,
        "peak_memory_bytes": row.get("peak_memory_bytes") if measured else None,
    }  # fmt: skip
    metrics = _metrics(head, row) if measured else {}
    evidence = {} if measured else {"phase": "worst_case", "text": "DefaultCPUAllocator: can't allocate memory"}
    run = _run(database, study, made.id, "search", 1)
    runs.record_end(
        database, id=run, outcome=row["outcome"], trial_id=made.id,
        run={
            **end, "measurement": metrics, "seconds": row["seconds"], "step_seconds": row.get("step_seconds", []),
            "evidence": {**evidence, "log_tail": "" if measured else "RuntimeError: out of memory"},
            "hardware": {"name": head["device"], "versions": head["versions"]},
        },
        trial={
            **end, "throughput_unit": head["throughput_unit"], "windows": 1 if measured else 0, "metrics": metrics,
            "throughput_standard_error": row.get("throughput_standard_error"), "evidence": evidence,
            "seconds": row["seconds"],
        },
    )  # fmt: skip


def _metrics(head: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    steps = sorted(row.get("step_seconds") or [0.1])
    error = row.get("throughput_standard_error") or 0.0
    return {
        "throughput_unit": head["throughput_unit"], "throughput": row["throughput"], "mfu": None, "energy_joules": None,
        "relative_standard_error": error / row["throughput"], "median_step_seconds": steps[len(steps) // 2],
        "setup_seconds": row.get("setup_seconds", 1.0), "window_seconds": row.get("window_seconds", 1.0),
        "memory": {"peak_memory_bytes": row["peak_memory_bytes"], "peak_reserved_bytes": None},
    }  # fmt: skip


def _run(database: Database, study: StudyRecord, trial_id: int, purpose: str, attempt: int) -> str:
    id = str(uuid.uuid4())
    runs.start(database, id=id, study_id=study.id, trial_id=trial_id, purpose=purpose, attempt=attempt)
    return id


def _confirm(database: Database, study: StudyRecord, rows: Sequence[Mapping[str, Any]]) -> None:
    """The fastest that fits and the baseline get the recorded further runs as their confirmation."""
    known = trials.list_of(database, study.id)
    fits = [each for each in known if each.outcome == "completed" and _fits(each.peak_memory_bytes, study)]
    if not fits:
        return
    best = max(fits, key=lambda each: each.throughput or 0.0)
    told = {each.id: _later(rows[each.number]) for each in (known[0], best) if each.outcome == "completed"}
    for attempt in range(1, 1 + min(map(len, told.values()))):  # in turn, as the confirmation runs them
        for trial_id, later in told.items():
            _confirmation(database, study, trial_id, attempt, later[attempt - 1])
    view = StudyView(
        study=study,
        trials=trials.list_of(database, study.id),
        runs=runs.list_of(database, study_id=study.id),
        spec=specs.from_mapping(study.spec),
    )
    for trial_id, interval in view.answer.intervals.items():
        trials.update_fields(database, trial_id, confirmed=True, confirmed_throughput=interval.mean)


def _later(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    told = row.get("runs", [])
    return (told[CONFIRMED_AFTER:] or told)[:6]


def _fits(peak: int | None, study: StudyRecord) -> bool:
    return peak is not None and (study.memory_limit_bytes is None or peak <= study.memory_limit_bytes)


def _confirmation(database: Database, study: StudyRecord, trial_id: int, attempt: int, said: Mapping[str, Any]) -> None:
    run = _run(database, study, trial_id, "confirm", attempt)
    measured = {"relative_standard_error": 0.01, "throughput": said["throughput"], "window_seconds": said["seconds"]}
    runs.finish(
        database, run, outcome="completed", throughput=said["throughput"], measurement=measured, seconds=said["seconds"]
    )


def grow(database: Database, study: StudyRecord, trials_in_all: int, seed: int = 0) -> StudyRecord:
    """Makes a recorded study large: copies of its trials, each moved a little, with one run each."""
    chance = random.Random(seed)
    with database.transaction() as session:
        known = [
            dict(each)
            for each in session.execute(select(*Trial.__table__.c).where(Trial.study_id == study.id)).mappings()
        ]
        searched = select(*Run.__table__.c).where(Run.study_id == study.id, Run.purpose == "search")
        of_trial = {each["trial_id"]: dict(each) for each in session.execute(searched).mappings()}
        first_id = 1 + (session.scalar(select(func.max(Trial.id))) or 0)
        made = list(_copies(known, of_trial, trials_in_all, first_id, chance))
        session.execute(insert(Trial), [trial for trial, _ in made])
        session.execute(insert(Run), [run for _, run in made])
        session.execute(
            update(Study).where(Study.id == study.id).values(trial_count=trials_in_all, version=Study.version + 1)
        )
        if not database.embedded:
            session.execute(select(func.setval("tuner_trial_id_seq", first_id + len(made))))
    return studies.get(database, study.id)


def _copies(
    known: Sequence[dict[str, Any]],
    of_trial: Mapping[int, dict[str, Any]],
    many: int,
    first_id: int,
    chance: random.Random,
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for at, number in enumerate(range(len(known), many)):
        trial = dict(chance.choice(known[1:]))
        run = dict(of_trial[trial["id"]])
        moved = {"confirmed": False, "confirmed_throughput": None, "config_key": f"{number:016x}"}
        if trial["throughput"] is not None:
            slower, leaner = 1 - 0.35 * chance.random(), 1 + 0.6 * chance.random()
            moved |= {
                "throughput": trial["throughput"] * slower,
                "peak_memory_bytes": int(trial["peak_memory_bytes"] * leaner),
            }
            run["throughput"] = moved["throughput"]
        loader = {"loader_workers": chance.randrange(5), "prefetch_factor": 2 + chance.randrange(4)}
        trial |= {"id": first_id + at, "number": number, "config": {**trial["config"], **loader}, **moved}
        run |= {"id": str(uuid.UUID(int=chance.getrandbits(128))), "trial_id": first_id + at}
        yield trial, run
